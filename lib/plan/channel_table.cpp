#include "plan/channel_table.h"

#include <chrono>

#include "base/log.h"
#include "net/serving.h"

namespace tutti {
namespace {

constexpr int64_t longest_wait_ms = 1000;  // between checks of the deadline
constexpr int64_t retry_ns = 100'000'000;

}  // namespace

Result<OpenSender> ChannelTable::sender(Rank peer, uint16_t lane, Deadline deadline) {
    std::unique_lock lock(mutex_);
    SenderEntry& out = senders_[{peer, lane}];
    while (out.opening && !deadline.passed() && !net::wait_cancelled())
        outcome_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(longest_wait_ms)));
    if (out.opening)
        return fail_rank(Code::timeout, peer,
                         "another thread is still opening the connection to rank {} (lane {})",
                         peer, lane);
    if (!out.sender) {
        out.opening = true;
        lock.unlock();
        // Connect without the lock: connecting waits for the peer, which may be opening a channel
        // to this rank.
        auto opened = endpoint_.open(id_of({peer, lane}), deadline);
        lock.lock();
        store_outcome(out, opened);
        outcome_.notify_all();
        if (!opened) {
            return tl::unexpected(in_group(std::move(opened).error(), peer));
        }
    }
    return OpenSender{out.sender.get(), &out.transport->capabilities()};
}

// Translates the ranks of the endpoint's error from the job's to the communicator's.
Error ChannelTable::in_group(Error error, Rank peer) const {
    const Rank in_job = group_.in_job(peer);
    if (error.code == Code::timeout)
        error.rank = peer;
    else if (error.rank != nobody)
        error.rank = group_.of_job(error.rank);
    if (in_job != peer)
        error.message =
            fmt::format("rank {} is rank {} of the job: {}", peer, in_job, error.message);
    return error;
}

void ChannelTable::store_outcome(SenderEntry& out, Result<Opened>& opened) {
    out.opening = false;
    if (!opened) return;
    out.sender = std::move(opened->first);
    out.transport = opened->second;
}

Sender* ChannelTable::sender_soon(Rank peer, uint16_t lane) {
    const std::lock_guard lock(mutex_);
    SenderEntry& out = senders_[{peer, lane}];
    if (out.sender || out.opening || out.asked || now_ns() < out.again_ns) return out.sender.get();
    out.asked = true;
    endpoint_.open_later(id_of({peer, lane}));
    return nullptr;
}

bool ChannelTable::still_wanted(const ChannelId& id) {
    const std::lock_guard lock(mutex_);
    SenderEntry& out = senders_[{group_.of_job(id.peer), id.lane}];
    out.asked = false;
    if (out.sender || out.opening) return false;
    return out.opening = true;
}

void ChannelTable::connected(const ChannelId& id, Result<Opened> opened) {
    const std::lock_guard lock(mutex_);
    SenderEntry& out = senders_[{group_.of_job(id.peer), id.lane}];
    store_outcome(out, opened);
    if (!opened) {
        out.again_ns = now_ns() + retry_ns;
        log::debug("lane {}: {}", id.lane, opened.error().message);
    }
    outcome_.notify_all();
}

ReceiverSlot* ChannelTable::receiver(Rank peer, uint16_t lane) {
    const std::lock_guard lock(mutex_);
    auto& slot = slots_[{peer, lane}];
    if (!slot) {
        slot = std::make_unique<ReceiverSlot>();
        slot->peer = peer;
    }
    return slot.get();
}

void ChannelTable::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    const Rank peer = group_.of_job(id.peer);
    if (peer == nobody) {
        log::warn(fail_rank(Code::mismatch, id.peer,
                            "ignored a channel that rank {} of the job opened for a communicator "
                            "that it is not in",
                            id.peer)
                      .advice("install the same version of tutti on all hosts, or report this as a "
                              "bug of tutti"));
        return;
    }
    ReceiverSlot* slot = this->receiver(peer, id.lane);
    const std::lock_guard lock(mutex_);
    if (slot->receiver.load(std::memory_order_relaxed)) {
        log::warn(fail_rank(Code::mismatch, id.peer,
                            "ignored lane {}, which rank {} opened a second time", id.lane, id.peer)
                      .advice("install the same version of tutti on all hosts, or report this as a "
                              "bug of tutti"));
        return;
    }
    receivers_.push_back(std::move(receiver));
    slot->receiver.store(receivers_.back().get(), std::memory_order_release);
}

}  // namespace tutti
