// The queues of a posted channel, between a lane's thread and the thread that owns the connection
// (or the library's port). Each queue has one producer and one consumer.
//
// Positions count messages since the beginning and are kept modulo the number of credits, which
// bounds every queue: each message needs a credit, and the receiver returns it only after it has
// released the message's place.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "transport/channel.h"
#include "transport/posted/cells.h"
#include "wait/sleeper.h"

namespace tutti {

struct SendQueue {
    struct QueuedMessage {
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;  // none: the caller's memory
        bool on_device = false;     // data is a GPU's memory
    };
    // Written by the lane's thread.
    std::atomic<uint64_t> pushed{0};
    // Written by the owner. begun ≥ sent. begun: handed over to the connection or library; sent:
    // their memory is free again. granted: by the peer; allowed: the granted messages that have a
    // place in this queue.
    uint64_t begun = 0;
    std::atomic<uint64_t> sent{0};
    uint64_t granted = credits_per_channel;
    std::atomic<uint64_t> allowed{credits_per_channel};

    std::array<QueuedMessage, credits_per_channel> messages;
    CellPool staging;
    Sleeper sleeper;
    std::atomic<bool> open{false};  // there is a Sender
    bool takes_device = false;      // set before there is a Sender

    QueuedMessage& at(uint64_t position) { return messages[position % credits_per_channel]; }
    /// For the owner: whether the lane has pushed messages that are not sent.
    bool has_unsent() const {
        return sent.load(std::memory_order_relaxed) != pushed.load(std::memory_order_relaxed);
    }
    // For the owner: adds credits of the peer, which can have released the first `taken` messages
    // at most. False: these are more credits than the peer owed.
    bool grant(uint32_t credits, uint64_t taken) {
        if (granted + credits > taken + credits_per_channel) return false;
        granted += credits;
        return true;
    }
    /// Lets the lane push the granted messages. The places of the first `done` messages are free.
    void allow(uint64_t done) {
        const uint64_t now = std::min(granted, done + credits_per_channel);
        if (now != allowed.load(std::memory_order_relaxed))
            allowed.store(now, std::memory_order_seq_cst);
    }
    /// Replaces messages that the lane has pushed and the owner has not begun by copies. False:
    /// there is no memory for copies.
    bool copy_queued() {
        for (uint64_t p = begun; p < pushed.load(std::memory_order_relaxed); ++p) {
            QueuedMessage& message = at(p);
            const bool lent = message.cell == CellPool::none && !message.on_device;
            if (lent && !copy_to_cell(staging, message)) return false;
        }
        return true;
    }
};

/// A lane's request to receive a message at an address. The lane writes it while the state is none;
/// the owner reads it after its compare-exchange to taken.
class Offer {
public:
    /// For the lane. False: the owner has taken the offer, and the message is arriving there.
    bool withdraw() {
        auto state = State::open;
        return state_.compare_exchange_strong(state, State::none) || state == State::none;
    }
    void put(const Tag& tag, std::byte* where, std::size_t bytes, uint64_t position,
             bool on_device = false) {
        tag_ = tag;
        where_ = where;
        bytes_ = bytes;
        position_ = position;
        on_device_ = on_device;
        state_.store(State::open, std::memory_order_seq_cst);
    }
    /// For the owner: the memory offered for that message, until clear(). nullptr: none. An offer
    /// is for one position; an offer that is too late, or for another call's message, is void.
    std::byte* take(const Tag& tag, std::size_t bytes, uint64_t position) {
        auto state = State::open;
        if (state_.load(std::memory_order_seq_cst) != state ||
            !state_.compare_exchange_strong(state, State::taken))
            return nullptr;
        if (position_ == position && tag_ == tag && bytes_ == bytes) return where_;
        clear();
        return nullptr;
    }
    /// Whether the taken offer is a GPU's memory.
    bool on_device() const { return on_device_; }
    void clear() { state_.store(State::none, std::memory_order_release); }

private:
    enum class State : uint8_t { none, open, taken };
    std::atomic<State> state_{State::none};
    bool on_device_ = false;
    Tag tag_;
    std::byte* where_ = nullptr;
    std::size_t bytes_ = 0;
    uint64_t position_ = 0;
};

struct ReceiveCounts {
    // Written by the owner: headers seen, and credits returned.
    std::atomic<uint64_t> begun{0}, returned{0};
    // Written by the lane's thread.
    std::atomic<uint64_t> released{0};

    /// For the owner: credits to return to the peer once the first `free` places are free.
    uint16_t owed(uint64_t free) const {
        return static_cast<uint16_t>(free - returned.load(std::memory_order_relaxed));
    }
    /// For the owner: it has told the peer of these credits.
    void give_back(uint64_t free) { returned.store(free, std::memory_order_relaxed); }
    /// The receiver sends credits in a message of their own when half of them are owed, or when the
    /// sender has none left. The lane asks after publishing `released`, the owner after publishing
    /// `begun`, so one of them sees that credits are due.
    bool credits_due() const {
        const uint64_t given = returned.load(std::memory_order_relaxed);
        const uint64_t due = released.load(std::memory_order_seq_cst) - given;
        const uint64_t used = begun.load(std::memory_order_seq_cst) - given;
        return due >= credits_per_channel / 2 || (due > 0 && used >= credits_per_channel);
    }
};

/// One channel, both directions: the part that all engines share.
template <typename Flow>
struct PostedFlow {
    explicit PostedFlow(const ChannelId& in_id) : id(in_id) {}

    const ChannelId id;
    SendQueue out;
    bool open_due = false;  // this rank must still announce the sender to the peer; the owner's
    bool ours = false;      // this rank has opened the channel; the owner's

    // Used by ReadyList.
    std::atomic<bool> ready{false};
    Flow* next_ready = nullptr;
};

}  // namespace tutti
