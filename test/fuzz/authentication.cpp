// Both sides of the handshake, against bytes of someone without the secret.
#include <sys/socket.h>

#include "base/fd.h"
#include "fuzz/catalog.h"
#include "net/auth.h"

namespace tutti::fuzz {
namespace {

const net::AuthKey key{"a secret that nobody guesses", "store/fuzz"};
// The socket holds all input from the start, so only a fault could wait this long.
constexpr int64_t patience_ms = 60'000;

void serve(Input in) {
    net::AuthServer server(key, "store");
    Bytes reply;
    for (std::size_t fed = 0; server.wants() > 0 && !in.empty(); ++fed) {
        require(fed < 2, "the handshake goes on for ever");
        const auto state = server.feed(in.take(server.wants()), reply);
        require(state != net::AuthServer::State::done, "a stranger is let in");
        if (state != net::AuthServer::State::failed) continue;
        require(reply.empty() && server.error().code == Code::auth, "it failed without saying so");
        return;
    }
}

void call(ByteView input) {
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "no socketpair");
    const UniqueFd own(pair[0]), other(pair[1]);
    require(::send(other.get(), input.data(), input.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(input.size()),
            "the input does not fit a socket");
    ::shutdown(other.get(), SHUT_WR);
    const auto met = net::authenticate_client(own.get(), key, Deadline::after_ms(patience_ms));
    require(!met, "a stranger's server is believed");
}

}  // namespace

// The first byte says which side.
void run_authentication(ByteView input) {
    Input in(input.first(std::min<std::size_t>(input.size(), 4096)));
    if (in.get<uint8_t>() % 2 == 0)
        serve(in);
    else
        call(in.rest());
}

std::vector<Bytes> seeds_authentication() {
    Bytes client = to_bytes(std::string("\0tutti/1\n", 9) + std::string(32, 'c'));
    Bytes server = to_bytes(std::string("\1", 1) + std::string(64, 's') + std::string("\1", 1));
    Bytes whole = client;
    whole.resize(whole.size() + 32, std::byte{'p'});
    return {client, server, whole};
}

}  // namespace tutti::fuzz
