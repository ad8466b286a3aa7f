#include "net/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "net/socket.h"

namespace tutti::net {
namespace {

constexpr std::string_view magic = "tutti/1\n";
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t proof_bytes = 32;
// Secret and job go into one proof: which of them differs, nobody can tell.
constexpr std::string_view compare_secrets =
    "compare TUTTI_SECRET and TUTTI_JOB, which must be the same on every rank";

// OpenSSL's exit handler would free what threads still use: it is not registered, unless the
// program has used OpenSSL before (then comm/at_exit.h stops the service thread in time).
void begin_openssl() {
    static const int begun = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    static_cast<void>(begun);
}

void append(Bytes& out, ByteView more) {
    out.insert(out.end(), more.begin(), more.end());
}

Bytes prove(const AuthKey& key, std::string_view side, ByteView nonce_c, ByteView nonce_s) {
    Bytes text;
    append(text, as_bytes(side));
    append(text, as_bytes(key.context));
    append(text, nonce_c);
    append(text, nonce_s);
    Bytes proof(proof_bytes);
    unsigned length = 0;
    begin_openssl();
    if (HMAC(EVP_sha256(), key.secret.c_str(), static_cast<int>(key.secret.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr ||
        length != proof_bytes)
        throw std::runtime_error("HMAC-SHA-256 failed in OpenSSL");
    return proof;
}

Bytes prove_server(const AuthKey& key, ByteView nonce_c, ByteView nonce_s) {
    return prove(key, "tutti server", nonce_c, nonce_s);
}
Bytes prove_client(const AuthKey& key, ByteView nonce_c, ByteView nonce_s) {
    return prove(key, "tutti client", nonce_c, nonce_s);
}

bool equal_in_constant_time(ByteView a, ByteView b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// A transfer that failed inside the handshake, in words that name the likely cause.
tl::unexpected<Error> broken(const Error& error) {
    if (error.code == Code::timeout)
        return fail(Code::timeout, "the other side did not finish the authentication: {}",
                    error.message);
    if (error.code != Code::peer_lost) return wrap(error, "authentication");
    return tl::unexpected<Error>(Error{
        Code::auth, nobody, ECONNRESET,
        fmt::format(
            "the other side closed the connection during authentication: it is not "
            "this job's, is shutting down, is out of file descriptors, or does not accept our "
            "proof; {}",
            compare_secrets)});
}

Result<> exchange(int fd, ByteView out, std::span<std::byte> in, Deadline deadline) {
    if (auto sent = send_all(fd, out, deadline); !sent) return broken(sent.error());
    if (auto received = recv_all(fd, in, deadline); !received) return broken(received.error());
    return {};
}

}  // namespace

Result<> authenticate_client(int fd, const AuthKey& key, Deadline deadline) {
    const Bytes nonce_c = random_bytes(nonce_bytes);
    Bytes first;
    append(first, as_bytes(magic));
    append(first, nonce_c);
    Bytes answer(nonce_bytes + proof_bytes);
    TUTTI_TRY(exchange(fd, first, answer, deadline));

    const ByteView nonce_s = ByteView(answer).first(nonce_bytes);
    if (!equal_in_constant_time(ByteView(answer).subspan(nonce_bytes),
                                prove_server(key, nonce_c, nonce_s)))
        return fail(Code::auth, "the other side has another secret, or serves another job; {}",
                    compare_secrets);
    std::byte accepted{};
    TUTTI_TRY(exchange(fd, prove_client(key, nonce_c, nonce_s), {&accepted, 1}, deadline));
    if (accepted != std::byte{1})
        return fail(Code::auth, "the other side answered {} instead of accepting; {}",
                    static_cast<int>(accepted), compare_secrets);
    return {};
}

AuthServer::AuthServer(AuthKey key) : key_(std::move(key)) {}

std::size_t AuthServer::wants() const {
    if (stage_ == 0) return magic.size() + nonce_bytes;
    return stage_ == 1 ? proof_bytes : 0;
}

AuthServer::State AuthServer::feed(ByteView in, Bytes& reply) {
    reply.clear();
    const auto refuse = [this](std::string why) {
        stage_ = 2;
        error_ = Error{Code::auth, nobody, 0, std::move(why)};
        return State::failed;
    };
    if (wants() == 0 || in.size() != wants()) return refuse("authentication fed out of turn");
    if (stage_ == 0) {
        if (as_text(in.first(magic.size())) != magic)
            return refuse("the client does not speak tutti's protocol");
        nonce_c_.assign(in.begin() + magic.size(), in.end());
        nonce_s_ = random_bytes(nonce_bytes);
        reply = nonce_s_;
        append(reply, prove_server(key_, nonce_c_, nonce_s_));
        stage_ = 1;
        return State::more;
    }
    if (!equal_in_constant_time(in, prove_client(key_, nonce_c_, nonce_s_)))
        return refuse(fmt::format("the client has another secret, or is of another job; {}",
                                  compare_secrets));
    stage_ = 2;
    reply = {std::byte{1}};
    return State::done;
}

Bytes random_bytes(std::size_t n) {
    Bytes out(n);
    begin_openssl();
    if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(n)) != 1)
        throw std::runtime_error("the system has no random bytes");
    return out;
}

std::string random_hex(std::size_t n) {
    std::string out;
    for (const std::byte b : random_bytes(n))
        out += fmt::format("{:02x}", static_cast<unsigned>(b));
    return out;
}

}  // namespace tutti::net
