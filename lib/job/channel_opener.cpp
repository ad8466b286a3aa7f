#include "job/channel_opener.h"

#include <chrono>

#include "net/serving.h"

namespace tutti {
namespace {

constexpr int64_t contact_ms = 1000;  // for a channel to a peer that is known to be there

}  // namespace

void ChannelOpener::add(const ChannelId& id) {
    {
        const std::lock_guard lock(mutex_);
        channels_.push_back(id);
    }
    wakeups_.wake_service();
}

std::optional<ChannelOpener::OpeningRequest> ChannelOpener::begin_next() {
    // Clear before the check: a thread that adds a request after the check wakes this thread.
    wakeups_.clear_service_wake();
    const std::lock_guard lock(mutex_);
    if (opening_ || leaving_) return std::nullopt;
    OpeningRequest next;
    if (!channels_.empty()) {
        next.channel = channels_.front();
        channels_.pop_front();
    } else if (next.detour = detours_.next(); next.detour == nobody) {
        return std::nullopt;
    }
    opening_ = true;
    return next;
}

// The peer may be opening a channel to this rank at the same time, so this thread serves its
// reactor while it connects. It holds no lock that a handler of this process needs.
void ChannelOpener::open_all() {
    if (!wakeups_.service_woken()) return;  // no thread has added a request since the last check
    while (const auto next = begin_next()) {
        const net::ServeWhileWaiting serving(&wakeups_.reactor());
        open(*next);
        {
            const std::lock_guard lock(mutex_);
            opening_ = false;
        }
        ended_.notify_all();
        wakeups_.ring();
    }
}

void ChannelOpener::open(const OpeningRequest& wanted) {
    if (!wanted.channel) return open_detour(wanted.detour);
    const ChannelId& id = *wanted.channel;
    if (clients_.still_wanted(id))
        clients_.connected(id, connector_.open(id, Deadline::after_ms(contact_ms)));
}

void ChannelOpener::open_detour(Rank to) {
    const Result<> opened = router_.is_gone(to)
                                ? fail_rank(Code::peer_lost, to, "rank {} is gone", to)
                                : dialer_.open(to);
    if (!opened) router_.cut_off(to, opened.error());
}

void ChannelOpener::wait_until_idle(int64_t most_ms) {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, std::chrono::milliseconds(most_ms), [this] { return !opening_; });
}

}  // namespace tutti
