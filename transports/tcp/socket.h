// The socket of a connection, as the data reactor watches it.
#pragma once

#include <atomic>
#include <functional>

#include "base/fd.h"
#include "base/result.h"
#include "os/uninherited_fd.h"

namespace tutti {
class Reactor;
}

namespace tutti::tcp {

/// While output waits for room in the kernel's buffer, the reactor watches for that room, and the
/// context counts the socket as one with unsent output. shut_down() ends both.
class DataSocket {
public:
    DataSocket(UniqueFd fd, Reactor* reactor, std::atomic<int>* unsent)
        : fd_(std::move(fd)), reactor_(reactor), unsent_count_(unsent) {}

    int fd() const { return fd_.get(); }
    Result<> watch(std::function<void(uint32_t)> on_events);
    void unwatch();
    /// The kernel's buffer is full.
    void output_waits() {
        watch_output(true);
        count_unsent(true);
    }
    /// All output is written. Leaves the watch on, because a busy connection would pay for two
    /// system calls per message. The next event for room, if any, removes it.
    void output_written() { count_unsent(false); }
    void unwatch_output() { watch_output(false); }

    /// Shuts down the sending half, so that the peer sees the end. May be called several times.
    void finish_sending();
    /// Whether the peer's kernel has everything.
    bool is_acknowledged() const;
    void shut_down();
    void close() { fd_.reset(); }
    /// Whether the peer has ended the connection, and nothing that it had sent is left to read.
    bool is_over() const;

private:
    void watch_output(bool on);
    void count_unsent(bool is);

    UninheritedFd fd_;
    Reactor* const reactor_;
    std::atomic<int>* const unsent_count_;
    bool output_watched_ = false;
    bool unsent_ = false;  // counted in unsent_count_
    bool finished_ = false;
};

}  // namespace tutti::tcp
