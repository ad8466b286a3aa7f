// Mutual authentication of a fresh connection, before a single field of the peer's is parsed.
//
//   client → server   magic (8 bytes), nonce_c (32)
//   server → client   nonce_s (32), HMAC(secret, "tutti server" ‖ context ‖ nonce_c ‖ nonce_s)
//   client → server   HMAC(secret, "tutti client" ‖ context ‖ nonce_c ‖ nonce_s)
//   server → client   one byte: 1
//
// HMAC-SHA-256. context is the job's name and the purpose of the connection, so that a proof for
// one is none for another. Fixed sizes only: there is nothing to parse. An empty secret still keeps
// jobs and purposes apart.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace tutti::net {

struct AuthKey {
    std::string secret;
    std::string context;
};

/// Blocking until the deadline. auth: the other side has another key (says to compare TUTTI_SECRET
/// and TUTTI_JOB), or does not speak this protocol.
Result<> authenticate_client(int fd, const AuthKey& key, Deadline deadline);

/// The server's side as a state machine without I/O of its own: feed what arrived, send what it
/// says.
class AuthServer {
public:
    explicit AuthServer(AuthKey key);
    enum class State : uint8_t { more, done, failed };
    /// The number of bytes to read next. If the caller reads no more, bytes that follow the
    /// handshake stay in the socket.
    std::size_t wants() const;
    /// Exactly wants() bytes. `reply` is set to what must be sent, possibly nothing.
    State feed(ByteView in, Bytes& reply);
    const Error& error() const { return error_; }
    /// Whether the client speaks the protocol and has yet to answer our proof: who hangs up then
    /// mostly did not like it.
    bool has_proved() const { return stage_ == 1; }

private:
    Result<Bytes> answer(ByteView in);
    Result<Bytes> greet(ByteView in);
    Result<Bytes> judge(ByteView in) const;

    AuthKey key_;
    Bytes nonce_c_, nonce_s_;
    int stage_ = 0;
    Error error_;
};

/// n random bytes from the system; hex for names and secrets. system: it has none.
Result<Bytes> random_bytes(std::size_t n);
Result<std::string> random_hex(std::size_t n);

}  // namespace tutti::net
