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

/// While output waits for room in the kernel, the reactor watches for that room, and the socket is
/// counted among those with unsent output. After shut_down() neither is so.
class DataSocket {
public:
    DataSocket(UniqueFd fd, Reactor* reactor, std::atomic<int>* unsent)
        : fd_(std::move(fd)), reactor_(reactor), unsent_count_(unsent) {}

    int fd() const { return fd_.get(); }
    Result<> watch(std::function<void(uint32_t)> on_events);
    void unwatch();
    /// The kernel takes no more for now.
    void output_waits() {
        watch_output(true);
        count_unsent(true);
    }
    /// All is written. The watch is left on: a busy connection would pay for a system call twice
    /// per message. The reactor's next look, if there ever is one, takes it off.
    void output_written() { count_unsent(false); }
    void unwatch_output() { watch_output(false); }

    /// The peer hears that nothing more comes. Any number of times.
    void finish_sending();
    /// Whether the peer's kernel has everything.
    bool is_acknowledged() const;
    void shut_down();
    void close() { fd_.reset(); }

private:
    void watch_output(bool on);
    void count_unsent(bool is);

    UninheritedFd fd_;
    Reactor* const reactor_;
    std::atomic<int>* const unsent_count_;
    bool output_watched_ = false;
    bool unsent_ = false;  // counted
    bool finished_ = false;
};

}  // namespace tutti::tcp
