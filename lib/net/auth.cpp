#include "net/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cerrno>

#include "net/socket.h"

namespace tutti::net {
namespace {

constexpr std::size_t greeting_bytes = 8;
constexpr std::string_view greetings[] = {"tutti/1\n", "tutti/j\n"};  // by Greeting
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t proof_bytes = 32;
// Secret and job go into one proof, so this process cannot tell which of them differs.
constexpr std::string_view compare_secrets =
    "compare TUTTI_SECRET and TUTTI_JOB, which must be the same on every rank";

// OpenSSL's exit handler would free memory that threads still use, so it is not registered, unless
// the program has used OpenSSL before (then os/at_exit.h stops the service thread in time).
void begin_openssl() {
    static const int begun = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    static_cast<void>(begun);
}

void append(Bytes& out, ByteView more) {
    out.insert(out.end(), more.begin(), more.end());
}

Result<Bytes> prove(const AuthKey& key, std::string_view side, ByteView nonce_c, ByteView nonce_s) {
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
        return fail(Code::system, "authentication: HMAC-SHA-256 failed in OpenSSL")
            .advice("check that the installed OpenSSL allows HMAC with SHA-256");
    return proof;
}

Result<Bytes> prove_server(const AuthKey& key, ByteView nonce_c, ByteView nonce_s) {
    return prove(key, "tutti server", nonce_c, nonce_s);
}
Result<Bytes> prove_client(const AuthKey& key, ByteView nonce_c, ByteView nonce_s) {
    return prove(key, "tutti client", nonce_c, nonce_s);
}

// A transfer that failed inside the handshake, in words that name the likely cause.
ErrorResult broken(const Error& error) {
    if (error.code == Code::timeout)
        return fail(Code::timeout, "the other side did not finish the authentication: {}",
                    error.message)
            .advice("check that a rank of this job listens at that address, and is not stopped");
    if (error.code != Code::peer_lost) return wrap(error, "authentication");
    return ErrorResult({Code::auth, nobody, ECONNRESET,
                        "the other side closed the connection during authentication: it does not "
                        "belong to this job, is shutting down, is out of file descriptors, or "
                        "rejected the secret"})
        .advice(compare_secrets);
}

Result<> exchange(int fd, ByteView out, std::span<std::byte> in, Deadline deadline) {
    if (auto sent = send_all(fd, out, deadline); !sent) return broken(sent.error());
    if (auto received = recv_all(fd, in, deadline); !received) return broken(received.error());
    return {};
}

}  // namespace

Result<> authenticate_client(int fd, const AuthKey& key, Deadline deadline) {
    TUTTI_ASSIGN(const Bytes nonce_c, random_bytes(nonce_bytes));
    Bytes first;
    append(first, as_bytes(greetings[static_cast<std::size_t>(key.greeting)]));
    append(first, nonce_c);
    Bytes answer(nonce_bytes + proof_bytes);
    TUTTI_TRY(exchange(fd, first, answer, deadline));

    const ByteView nonce_s = ByteView(answer).first(nonce_bytes);
    TUTTI_ASSIGN(const Bytes expected, prove_server(key, nonce_c, nonce_s));
    if (!equal_in_constant_time(ByteView(answer).subspan(nonce_bytes), expected))
        return fail(Code::auth, "the other side has another secret, or serves another job")
            .advice(compare_secrets);
    TUTTI_ASSIGN(const Bytes proof, prove_client(key, nonce_c, nonce_s));
    std::byte accepted{};
    TUTTI_TRY(exchange(fd, proof, {&accepted, 1}, deadline));
    if (accepted != std::byte{1})
        return fail(Code::auth, "the other side answered {} instead of accepting the secret",
                    static_cast<int>(accepted))
            .advice(compare_secrets);
    return {};
}

AuthServer::AuthServer(AuthKey key, std::string any_job_context)
    : key_(std::move(key)), any_job_context_(std::move(any_job_context)) {}

std::size_t AuthServer::wants() const {
    if (stage_ == 0) return greeting_bytes + nonce_bytes;
    return stage_ == 1 ? proof_bytes : 0;
}

AuthServer::State AuthServer::feed(ByteView in, Bytes& reply) {
    reply.clear();
    auto next = answer(in);
    if (!next) {
        stage_ = 2;
        error_ = std::move(next).error();
        return State::failed;
    }
    reply = *std::move(next);
    return ++stage_ == 1 ? State::more : State::done;
}

Result<Bytes> AuthServer::answer(ByteView in) {
    if (wants() == 0 || in.size() != wants())
        return fail(Code::auth, "authentication received {} bytes instead of {}", in.size(),
                    wants())
            .advice("report this as a bug of tutti");
    return stage_ == 0 ? greet(in) : judge(in);
}

// Handles the client's first bytes: replies with this side's nonce, and the proof of the secret.
Result<Bytes> AuthServer::greet(ByteView in) {
    const auto greeting =
        std::find(std::begin(greetings), std::end(greetings), as_text(in.first(greeting_bytes))) -
        std::begin(greetings);
    const bool any_job = greeting == static_cast<std::ptrdiff_t>(Greeting::any_job);
    if (greeting == std::ssize(greetings) || (any_job && any_job_context_.empty()))
        return fail(Code::auth, "the client does not speak tutti's protocol")
            .advice("find out which program connects to this port, or use another port");
    if (any_job) key_.context = any_job_context_;
    nonce_c_.assign(in.begin() + greeting_bytes, in.end());
    TUTTI_ASSIGN(nonce_s_, random_bytes(nonce_bytes));
    TUTTI_ASSIGN(const Bytes proof, prove_server(key_, nonce_c_, nonce_s_));
    Bytes reply = nonce_s_;
    append(reply, proof);
    return reply;
}

// Checks the client's proof.
Result<Bytes> AuthServer::judge(ByteView in) const {
    TUTTI_ASSIGN(const Bytes expected, prove_client(key_, nonce_c_, nonce_s_));
    if (!equal_in_constant_time(in, expected))
        return fail(Code::auth, "the client has another secret, or belongs to another job")
            .advice(compare_secrets);
    return Bytes{std::byte{1}};
}

Result<Bytes> sign(const AuthKey& key, ByteView message) {
    return prove(key, "tutti message", message, {});
}

bool equal_in_constant_time(ByteView a, ByteView b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<Bytes> random_bytes(std::size_t n) {
    Bytes out(n);
    begin_openssl();
    if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(n)) != 1)
        return fail(Code::system, "the system has no random bytes (OpenSSL's RAND_bytes failed)")
            .advice("check that this process may call getrandom, or read /dev/urandom");
    return out;
}

Result<std::string> random_hex(std::size_t n) {
    TUTTI_ASSIGN(const Bytes bytes, random_bytes(n));
    std::string out;
    for (const std::byte b : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(b));
    return out;
}

}  // namespace tutti::net
