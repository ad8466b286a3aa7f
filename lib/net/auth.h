// Mutual authentication of a new connection, before this side parses any field of the peer's.
//
//   client → server   greeting (8 bytes), nonce_c (32)
//   server → client   nonce_s (32), HMAC(secret, "tutti server" ‖ context ‖ nonce_c ‖ nonce_s)
//   client → server   HMAC(secret, "tutti client" ‖ context ‖ nonce_c ‖ nonce_s)
//   server → client   one byte: 1
//
// HMAC-SHA-256. context is the job's name and the purpose of the connection, so that a proof for
// one is invalid for another. All sizes are fixed: there is nothing to parse. An empty secret still
// keeps jobs and purposes apart.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace tutti::net {

/// The client's first bytes, which tell the server the context. any_job: of a server for several
/// jobs; the client names its job after the handshake.
enum class Greeting : uint8_t { own_job, any_job };

struct AuthKey {
    std::string secret;
    std::string context;
    Greeting greeting = Greeting::own_job;  // the client's; a server answers each that it knows
};

/// Blocks at most until the deadline. auth: the other side has another key (the error says to
/// compare TUTTI_SECRET and TUTTI_JOB), or does not speak this protocol.
Result<> authenticate_client(int fd, const AuthKey& key, Deadline deadline);

/// The server's side as a state machine without I/O: the caller feeds received bytes, and sends the
/// replies.
class AuthServer {
public:
    /// any_job_context: answers the greeting any_job, too, unless it is empty.
    explicit AuthServer(AuthKey key, std::string any_job_context = {});
    enum class State : uint8_t { more, done, failed };
    /// The number of bytes to read next. If the caller reads no more, bytes that follow the
    /// handshake stay in the socket.
    std::size_t wants() const;
    /// in: exactly wants() bytes. Sets `reply` to the bytes to send, possibly none.
    State feed(ByteView in, Bytes& reply);
    const Error& error() const { return error_; }
    /// Whether the client speaks the protocol and has not answered our proof yet: a client that
    /// closes now has probably rejected the proof.
    bool has_proved() const { return stage_ == 1; }

private:
    Result<Bytes> answer(ByteView in);
    Result<Bytes> greet(ByteView in);
    Result<Bytes> judge(ByteView in) const;

    AuthKey key_;
    std::string any_job_context_;
    Bytes nonce_c_, nonce_s_;
    int stage_ = 0;
    Error error_;
};

/// A proof that the message comes from a process that knows the key's secret, for the key's
/// context.
Result<Bytes> sign(const AuthKey& key, ByteView message);
bool equal_in_constant_time(ByteView a, ByteView b);

/// n random bytes from the system; hex for names and secrets. system: the system has none.
Result<Bytes> random_bytes(std::size_t n);
Result<std::string> random_hex(std::size_t n);

}  // namespace tutti::net
