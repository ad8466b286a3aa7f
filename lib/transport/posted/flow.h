// What the posted transports' channels are made of: the queues between a lane's thread and
// whichever thread owns the connection (or the library's port). Each queue has one producer and one
// consumer.
//
// Positions count messages since the beginning and are kept modulo the number of credits, which
// bounds every queue: a message is only sent against a credit, and a credit only comes back when
// the receiver has released the message's place.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <utility>

#include "base/clock.h"
#include "transport/channel.h"
#include "transport/posted/cells.h"

namespace tutti {

/// Which thread sleeps until this half of the channel moves; nullptr: none.
class Sleeper {
public:
    void announce(bool on) { thread_.store(on ? &moved() : nullptr, std::memory_order_seq_cst); }
    /// True if another thread sleeps and must be woken. The caller has published first, both
    /// sequentially consistent: either we see the sleeper here, or it sees what was published.
    bool wants_waking() {
        const bool* const thread = thread_.load(std::memory_order_seq_cst);
        if (thread == nullptr || thread != &moved()) return thread != nullptr;
        moved() = true;
        return false;
    }
    /// Whether this thread itself moved, since it last asked, something that it had announced to
    /// wait for. It may have looked there before: it must not sleep on that.
    static bool take_moved() { return std::exchange(moved(), false); }

private:
    static bool& moved() {
        static thread_local bool moved = false;
        return moved;
    }
    std::atomic<const bool*> thread_{nullptr};
};

/// One thread at a time, and nobody who waits for long: the owner never blocks.
class OwnerFlag {
public:
    bool taken() const { return taken_.load(std::memory_order_relaxed); }
    bool try_take() { return !taken_.exchange(true, std::memory_order_seq_cst); }
    /// False: closed for good meanwhile.
    bool take(const std::atomic<bool>& closed) {
        for (int turn = 0; !try_take(); ++turn) {
            if (closed.load(std::memory_order_acquire)) return false;
            turn % 64 == 63 ? static_cast<void>(sched_yield()) : cpu_relax();
        }
        return true;
    }
    void give() { taken_.store(false, std::memory_order_seq_cst); }

private:
    std::atomic<bool> taken_{false};
};

struct SendQueue {
    struct Message {
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;  // none: the caller's memory
        bool on_device = false;     // which is a GPU's
    };
    // The lane's.
    std::atomic<uint64_t> pushed{0};
    // The owner's. begun ≥ sent: it was handed over; sent: its memory is free again.
    uint64_t begun = 0;
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> allowed{credits_per_channel};

    std::array<Message, credits_per_channel> messages;
    CellPool staging;
    Sleeper sleeper;
    std::atomic<bool> open{false};  // there is a Sender
    bool takes_device = false;      // said before there is one

    Message& at(uint64_t position) { return messages[position % credits_per_channel]; }
};

/// Where the lane wants a message. Written by the lane while the state is none, read by the owner
/// after it has made the state taken.
class Offer {
public:
    /// The lane's. False: the message is arriving where it was wanted before.
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
    /// The owner's: where that message is wanted, until clear(). nullptr: nowhere; an offer is for
    /// one position, and one that is too late, or for another call's message, is void.
    std::byte* take(const Tag& tag, std::size_t bytes, uint64_t position) {
        auto state = State::open;
        if (state_.load(std::memory_order_seq_cst) != state ||
            !state_.compare_exchange_strong(state, State::taken))
            return nullptr;
        if (position_ == position && tag_ == tag && bytes_ == bytes) return where_;
        clear();
        return nullptr;
    }
    /// Of what was taken.
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
    // The owner's: headers seen, credits given back.
    std::atomic<uint64_t> begun{0}, returned{0};
    // The lane's.
    std::atomic<uint64_t> released{0};

    /// Credits travel alone when half of them are owed, or when the sender has none left. Lane and
    /// owner both ask after publishing `released` and `begun`, so one of them sees that it is time.
    bool credits_due() const {
        const uint64_t given = returned.load(std::memory_order_relaxed);
        const uint64_t owed = released.load(std::memory_order_seq_cst) - given;
        const uint64_t used = begun.load(std::memory_order_seq_cst) - given;
        return owed >= credits_per_channel / 2 || (owed > 0 && used >= credits_per_channel);
    }
};

/// Flows with something to send. Anyone may add; the owner has them in the order in which they
/// came. A flow has `std::atomic<bool> ready` and `Flow* next_ready`.
template <typename Flow>
class ReadyList {
public:
    /// Something was added that the owner has not taken.
    bool added() const { return newest_.load(std::memory_order_seq_cst) != nullptr; }
    void add(Flow& flow) {
        if (flow.ready.exchange(true, std::memory_order_seq_cst)) return;
        Flow* top = newest_.load(std::memory_order_relaxed);
        do {
            flow.next_ready = top;
        } while (!newest_.compare_exchange_weak(top, &flow, std::memory_order_seq_cst));
    }

    // The owner's.
    void append(Flow& flow) {
        if (!flow.ready.exchange(true, std::memory_order_seq_cst)) link(flow);
    }
    void take_added() {
        if (!added()) return;
        // Pairs with add(): what was published before it is seen after this.
        Flow* newest = newest_.exchange(nullptr, std::memory_order_seq_cst);
        Flow* oldest = nullptr;
        while (newest) {
            Flow* next = newest->next_ready;
            newest->next_ready = oldest;
            oldest = newest;
            newest = next;
        }
        while (oldest) {
            Flow* next = oldest->next_ready;
            link(*oldest);
            oldest = next;
        }
    }
    bool empty() const { return first_ == nullptr; }
    /// The oldest, before its queues are looked at: what is published later puts it on the list
    /// again.
    Flow* pop() {
        Flow* flow = first_;
        first_ = flow->next_ready;
        if (!first_) last_ = nullptr;
        flow->ready.store(false, std::memory_order_seq_cst);
        return flow;
    }
    void clear() {
        take_added();
        while (!empty()) pop();
    }

private:
    void link(Flow& flow) {
        flow.next_ready = nullptr;
        (last_ ? last_->next_ready : first_) = &flow;
        last_ = &flow;
    }

    std::atomic<Flow*> newest_{nullptr};
    Flow* first_ = nullptr;
    Flow* last_ = nullptr;
};

}  // namespace tutti
