// epoll with handlers: who owns a file descriptor registers it and is called when it is ready.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/fd.h"
#include "base/result.h"

namespace tutti {

/// add, modify and remove from any thread; one thread at a time polls. After remove() returns on
/// another thread than the poller's, the handler may be in its last call; on the poller's own
/// thread it is never called again.
class Reactor {
public:
    using Handler = std::function<void(uint32_t events)>;

    Reactor();
    ~Reactor();
    /// system: the system would not watch this descriptor, or an earlier failure to make an epoll.
    Result<> add(int fd, uint32_t events, Handler handler);
    void modify(int fd, uint32_t events);
    /// Off: as if it had not been added, until it is on again. Whatever becomes readable costs who
    /// writes to it a walk up through all epolls that watch it, also while nobody polls. False: the
    /// system would not watch it again.
    bool watch(int fd, bool on);
    void remove(int fd);

    /// Calls the handlers of what is ready, after waiting at most timeout_ms (0: not at all, <0:
    /// for ever). Returns how many were called.
    int poll(int timeout_ms) { return poll(timeout_ms, rounds()); }
    /// The same, but without waiting if since, which rounds() gave, is not the latest: what was due
    /// meanwhile, another thread has been told in this one's place. While another polls, waits for
    /// its end, or for what it finds, and returns 0; at once from within a handler.
    int poll(int timeout_ms, uint64_t since);
    /// The number of polls that have found something ready and called its handlers.
    uint64_t rounds() const { return rounds_.load(std::memory_order_seq_cst); }

    /// Readable when a handler is due: lets one reactor, or a host program's loop, wait on another.
    int fd() const { return epoll_.get(); }

private:
    struct Entry;
    class Turn;
    static epoll_event event_of(int fd, const Entry& entry);
    void wait_beside(int timeout_ms, uint64_t since);
    std::shared_ptr<Entry> find(uint64_t token);

    UniqueFd epoll_;
    int create_errno_ = 0;
    std::mutex mutex_;
    uint32_t generation_ = 0;
    std::unordered_map<int, std::shared_ptr<Entry>> entries_;
    std::atomic<bool> polling_{false};
    std::atomic<std::thread::id> poller_;
    std::atomic<uint64_t> rounds_{0};
    std::mutex beside_mutex_;
    std::condition_variable polled_;
    std::atomic<int> beside_{0};  // that wait while another polls
};

}  // namespace tutti
