// Reactor: an epoll instance with a handler for each descriptor. The owner of a descriptor adds it
// with a handler, which the polling thread calls when the descriptor is ready.
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

/// Any thread may call any function; one thread at a time polls. remove() waits for no handler: if
/// another thread is polling, that thread may still be in the handler's last call, or begin it. If
/// the polling thread itself calls remove(), the handler is never called again.
class Reactor {
public:
    using Handler = std::function<void(uint32_t events)>;

    Reactor();
    ~Reactor();
    /// `system` if epoll_ctl fails for this descriptor, or if the constructor's epoll_create1
    /// failed.
    Result<> add(int fd, uint32_t events, Handler handler);
    void modify(int fd, uint32_t events);
    /// on = false takes the descriptor out of the epoll set, and on = true puts it back; the
    /// handler stays. Switch a descriptor off while no thread polls for it: a write to a watched
    /// descriptor costs the writer a walk up through every epoll that watches it, even if no thread
    /// polls them. False: epoll_ctl failed, or the descriptor was not added.
    bool watch(int fd, bool on);
    void remove(int fd);

    /// Waits at most timeout_ms (0: not at all, < 0: for ever) until a descriptor is ready, and
    /// calls the handlers of all ready descriptors. Returns how many handlers it called.
    int poll(int timeout_ms) { return poll(timeout_ms, rounds()); }
    /// The same for a thread that read `since` from rounds() before it announced its sleep. If
    /// rounds() has changed since, it does not wait: another thread's poll may have drained the
    /// wake-up that was meant for this thread. If another thread is polling now, waits until that
    /// poll ends or rounds() changes, at most timeout_ms, and returns 0. In a handler, returns 0 at
    /// once.
    int poll(int timeout_ms, uint64_t since);
    /// The number of polls that have found a ready descriptor and called its handlers.
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
    std::atomic<int> beside_{0};  // threads in wait_beside()
};

}  // namespace tutti
