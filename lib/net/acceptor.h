// A listener that authenticates whoever connects, without blocking, and hands over the ones that
// pass.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "net/auth.h"
#include "os/uninherited_fd.h"
#include "wait/reactor.h"

namespace tutti::net {

/// Runs on the reactor's thread and is destroyed there, or while nobody polls, but not by its own
/// handler. A connection that is silent for handshake_timeout_ms, fails the
/// handshake or sends a hello over 4 KiB is dropped (logged at debug level, but as a warning, now
/// and then, if it is for its secret or its job).
/// Strangers cannot use up descriptors: all acceptors of the process together hold at most
/// max_strangers connections that have not proved the secret, or an eighth of the descriptors that
/// the process may have, but each may hold four. For the next one, the oldest goes that has sent
/// nothing for 1/2000 of its time, or else has not proved itself for 1/100 of it; until there is
/// one, connections wait in the kernel. Out of descriptors, the acceptor rests, and drops the
/// oldest stranger that has had a tenth of its time. Time-outs come from a timer in the reactor:
/// they hold as long as somebody polls, with no other activity.
class Acceptor {
public:
    /// hello: the first frame the client sent after the handshake (net::send_frame).
    using Handler = std::function<void(UniqueFd fd, Bytes hello)>;
    struct Options {
        int handshake_timeout_ms = 10'000;
        std::size_t max_strangers = 64;
    };

    Acceptor(Reactor& reactor, UniqueFd listener, AuthKey key, Handler handler, Options options);
    ~Acceptor();
    Acceptor(const Acceptor&) = delete;

    /// Connections that spoke the protocol, but with another secret or for another job. Any thread.
    uint64_t turned_away() const { return turned_away_; }
    /// For how long an acceptor of this process has found no descriptor for a connection that
    /// waits; 0: none does. Any thread.
    static int64_t starving_ns();

private:
    struct Pending;
    void accept_ready();
    bool make_room();
    void pause(int64_t for_ns);
    void resume();
    void short_of_descriptors(int sys_errno);
    void admit(UniqueFd fd);
    void pending_ready(Pending& pending);
    bool advance(Pending& pending);  // false: pending is gone
    void hand_over(Pending& pending);
    void drop(Pending& pending, std::string_view why);
    void turn_away(Pending& pending, std::string_view why);
    Pending* oldest_stranger(bool has_spoken, int64_t timeout_share) const;
    void tick();
    void drop_stale();

    Reactor& reactor_;
    UninheritedFd listener_;
    UniqueFd timer_;
    int64_t resume_ns_ = 0;  // when a listener that rests goes on
    bool warned_ = false;
    std::atomic<uint64_t> turned_away_{0};
    int64_t tell_again_ns_ = 0;  // of those that were turned away
    AuthKey key_;
    Handler handler_;
    Options options_;
    std::list<std::unique_ptr<Pending>> pending_;
};

/// The other side: connects were made by the caller; this authenticates and sends the hello.
Result<> introduce(int fd, const AuthKey& key, ByteView hello, Deadline deadline);

/// Counts the calls that one connection takes. A listener that is short of descriptors or places
/// closes connections in mid-handshake: that is no answer yet. A wrong secret is one.
class Redial {
public:
    /// After a call that failed: whether to make another, at most ten in all. It is time for that
    /// when this returns; meanwhile the reactor is served (serving.h).
    bool again(const Error& error, Deadline deadline);

private:
    int calls_ = 0;
};

}  // namespace tutti::net
