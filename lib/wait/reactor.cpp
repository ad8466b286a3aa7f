#include "wait/reactor.h"

#include <cerrno>
#include <chrono>

namespace tutti {

// The generation tells a descriptor from an earlier one of the same number: an event that epoll
// reported for the old one must not reach the new one's handler.
struct Reactor::Entry {
    uint32_t generation;
    Handler handler;
    uint32_t events;
    bool watched = true;
};

namespace {

constexpr int events_per_poll = 64;

uint64_t make_token(int fd, uint32_t generation) {
    return uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

epoll_event Reactor::event_of(int fd, const Entry& entry) {
    epoll_event event{};
    event.events = entry.events;
    event.data.u64 = make_token(fd, entry.generation);
    return event;
}

class Reactor::Turn {
public:
    explicit Turn(Reactor& reactor)
        : reactor_(reactor), held_(!reactor.polling_.exchange(true, std::memory_order_acquire)) {
        if (held_) reactor.poller_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    Turn(const Turn&) = delete;
    // Dekker's pattern with wait_beside(): either this thread reads that thread's count in beside_,
    // or that thread reads that polling_ is false.
    ~Turn() {
        if (!held_) return;
        reactor_.poller_.store({}, std::memory_order_relaxed);
        reactor_.polling_.store(false, std::memory_order_seq_cst);
        if (reactor_.beside_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard lock(reactor_.beside_mutex_);
        reactor_.polled_.notify_all();
    }
    bool held() const { return held_; }

private:
    Reactor& reactor_;
    const bool held_;
};

Reactor::Reactor() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) create_errno_ = errno;
}

// The destructor of a handler may call remove() for another descriptor: entries_ is empty by then.
Reactor::~Reactor() {
    const auto last = std::exchange(entries_, {});
}

Result<> Reactor::add(int fd, uint32_t events, Handler handler) {
    if (!epoll_) return fail_errno(create_errno_, "cannot create an epoll instance");
    const std::lock_guard lock(mutex_);
    auto entry = std::make_shared<Entry>(Entry{++generation_, std::move(handler), events});
    epoll_event event = event_of(fd, *entry);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        const int saved_errno = errno;
        auto failed =
            fail_errno(saved_errno, fmt::format("cannot watch file descriptor {} with epoll", fd));
        if (saved_errno == ENOSPC)
            return std::move(failed).advice("raise sysctl fs.epoll.max_user_watches");
        return failed;
    }
    entries_[fd] = std::move(entry);
    return {};
}

void Reactor::modify(int fd, uint32_t events) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(fd);
    if (found == entries_.end()) return;
    Entry& entry = *found->second;
    entry.events = events;
    epoll_event event = event_of(fd, entry);
    if (entry.watched) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

bool Reactor::watch(int fd, bool on) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(fd);
    if (found == entries_.end()) return false;
    Entry& entry = *found->second;
    if (entry.watched == on) return true;
    epoll_event event = event_of(fd, entry);
    if (epoll_ctl(epoll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) != 0) return false;
    entry.watched = on;
    return true;
}

void Reactor::remove(int fd) {
    std::shared_ptr<Entry> last;  // freed after the unlock: its handler may call remove()
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(fd);
    if (found == entries_.end()) return;
    last = std::move(found->second);
    entries_.erase(found);
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::shared_ptr<Reactor::Entry> Reactor::find(uint64_t token) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(static_cast<int>(static_cast<uint32_t>(token)));
    if (found == entries_.end()) return nullptr;
    return found->second->generation == token >> 32 ? found->second : nullptr;
}

int Reactor::poll(int timeout_ms, uint64_t since) {
    // Acquire here, release in ~Turn(): this thread's handlers see all that the handlers of the
    // previous polling thread have written.
    const Turn turn(*this);
    if (!turn.held()) {
        if (timeout_ms != 0) wait_beside(timeout_ms, since);
        return 0;
    }
    // Another thread's poll has called handlers since `since` was read: it may have drained this
    // thread's wake-up.
    if (rounds() != since) timeout_ms = 0;
    epoll_event events[events_per_poll];
    const int ready = epoll_wait(epoll_.get(), events, events_per_poll, timeout_ms);
    int called = 0;
    for (int i = 0; i < ready; ++i) {
        // Look up each entry just before its call: an earlier handler of this round may have
        // removed it.
        const auto entry = find(events[i].data.u64);
        if (!entry) continue;
        entry->handler(events[i].events);
        ++called;
    }
    // Count after the handlers, because one of them drains a doorbell. If the count came first, a
    // thread could read the new rounds(), announce its sleep, lose its ring to that drain, and
    // sleep.
    if (ready > 0) rounds_.fetch_add(1, std::memory_order_seq_cst);
    return called;
}

void Reactor::wait_beside(int timeout_ms, uint64_t since) {
    // A handler that calls this would wait for the end of its own thread's poll.
    if (poller_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return;
    std::unique_lock lock(beside_mutex_);
    beside_.fetch_add(1, std::memory_order_seq_cst);
    const auto over = [&] {
        return !polling_.load(std::memory_order_seq_cst) || rounds() != since;
    };
    if (timeout_ms < 0)
        polled_.wait(lock, over);
    else
        polled_.wait_for(lock, std::chrono::milliseconds(timeout_ms), over);
    beside_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tutti
