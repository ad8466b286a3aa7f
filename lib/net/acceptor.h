// A listener that authenticates incoming connections without blocking, and hands over those that
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

/// Runs on the reactor's thread. It is destroyed there, or while no thread polls, but not by its
/// own handler. It drops a connection that is silent for handshake_timeout_ms, fails the handshake
/// or sends a hello over 4 KiB (logged at debug level; a wrong secret or job is logged as a warning
/// now and then).
///
/// Strangers, connections that have not proved the secret, cannot use up descriptors. All acceptors
/// of the process together hold at most max_strangers of them, or an eighth of the process's limit
/// of descriptors, but each acceptor may hold four. To admit the next one, an acceptor drops the
/// oldest that has sent nothing for 1/2000 of its time, or else the oldest that has not proved the
/// secret for 1/100 of it; until there is one, connections wait in the kernel. Out of descriptors,
/// the acceptor pauses, and drops the oldest stranger that has had a tenth of its time.
///
/// A timer in the reactor drives the time-outs: they work as long as a thread polls, without other
/// activity.
class Acceptor {
public:
    /// hello: the first frame that the client sent after the handshake (net::send_frame).
    using Handler = std::function<void(UniqueFd fd, Bytes hello)>;
    struct Options {
        int handshake_timeout_ms = 10'000;
        std::size_t max_strangers = 64;
        std::string any_job_context;  // of AuthServer
    };

    Acceptor(Reactor& reactor, UniqueFd listener, AuthKey key, Handler handler, Options options);
    ~Acceptor();
    Acceptor(const Acceptor&) = delete;

    /// Connections that spoke the protocol, but with another secret or for another job. Any thread.
    uint64_t turned_away() const { return turned_away_; }
    /// The time for which acceptors of this process have lacked a descriptor for a waiting
    /// connection; 0: they do not. Any thread.
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
    bool advance(Pending& pending);  // false: pending is destroyed
    void hand_over(Pending& pending);
    void drop(Pending& pending, std::string_view why);
    void turn_away(Pending& pending, std::string_view why);
    Pending* oldest_stranger(bool has_spoken, int64_t timeout_share) const;
    void tick();
    void drop_stale();

    Reactor& reactor_;
    UninheritedFd listener_;
    UniqueFd timer_;
    int64_t resume_ns_ = 0;  // when a paused listener resumes
    bool warned_ = false;
    std::atomic<uint64_t> turned_away_{0};
    int64_t tell_again_ns_ = 0;  // when the next warning about refused connections is due
    AuthKey key_;
    Handler handler_;
    Options options_;
    std::list<std::unique_ptr<Pending>> pending_;
};

/// The client's side: the caller has connected; this authenticates and sends the hello.
Result<> introduce(int fd, const AuthKey& key, ByteView hello, Deadline deadline);

/// Counts the attempts to connect. A listener that is short of descriptors or places closes
/// connections during the handshake: the client should try again. A wrong secret is final.
class Redial {
public:
    /// After an attempt that failed: whether to make another, at most ten in all. It waits until
    /// that is due, and serves the reactor meanwhile (serving.h).
    bool again(const Error& error, Deadline deadline);

private:
    int calls_ = 0;
};

}  // namespace tutti::net
