// The entry to an engine of posted channels: a connection, or a message library's port.
//
// Any thread may enter; an owner flag lets one in at a time. A thread that publishes something to
// send puts its flow on the ready list first and tries the flag second. The owner clears the flag
// first and checks the list second. So no published message is left unsent, and no thread waits.
#pragma once

#include <memory>

#include "transport/posted/events.h"
#include "transport/posted/ready_list.h"
#include "wait/owner.h"

namespace tutti {

/// Lets threads in and out. A thread delivers the events that it found as the owner on its way out,
/// without the flag, because the transport's client has locks of its own. Once the entry is closed
/// no thread enters.
///
/// exit() needs these of the engine: finish_turn(), which ends a turn; has_more(), whether a thread
/// has published a message meanwhile; flush(), which sends it; and make_receiver() of a flow.
template <typename Flow>
class EngineEntry {
public:
    explicit EngineEntry(ChannelEvents* events) : events_(events) {}

    bool taken() const { return owner_.taken(); }
    bool try_enter() { return owner_.try_take(); }
    /// Waits for the flag: the owner never blocks for long. False: the engine is closed for good.
    bool enter() { return owner_.take(closed_); }
    /// Publishes a flow with something to send. True: this thread is the owner, and must flush and
    /// leave. If the flag is free (the usual case), it calls append() and does not write the list
    /// that threads share.
    template <typename Append>
    bool enter_to_send(Flow& flow, Append append) {
        if (try_enter()) {
            append();
            return true;
        }
        ready_.add(flow);
        return try_enter();
    }
    template <typename Engine>
    void exit(Engine& engine) {
        for (;;) {
            engine.finish_turn();
            const std::unique_ptr<PendingEvents<Flow>> events = std::move(pending_);
            if (events) delivering_.fetch_add(1, std::memory_order_seq_cst);
            owner_.give();
            if (events) {
                deliver(engine, *events);
                delivering_.fetch_sub(1, std::memory_order_seq_cst);
            }
            if (!engine.has_more() || !owner_.try_take()) return;
            engine.flush();
        }
    }

    // For the owner.
    ReadyList<Flow>& ready() { return ready_; }
    PendingEvents<Flow>& pending() {
        if (!pending_) pending_ = std::make_unique<PendingEvents<Flow>>();
        return *pending_;
    }

    /// Reports a peer as lost, unless the transport is closing.
    void add_loss(Rank own, Rank peer, const std::string& cause, Culprit culprit) {
        if (!closing_) pending().add_loss(own, peer, cause, culprit);
    }

    /// Takes the engine for good, and waits at most until the deadline for threads that are still
    /// delivering events. False: the engine was closed already. unwatch(): from here on no thread
    /// needs to poll the engine.
    template <typename Unwatch>
    bool begin_close(Deadline deadline, Unwatch unwatch) {
        if (!enter()) return false;
        closing_ = true;
        unwatch();
        for (int turn = 0; delivering_.load(std::memory_order_seq_cst) > 0; ++turn) {
            if (deadline.passed()) break;
            spin_turn(turn);
        }
        return true;
    }
    /// For the owner: whether it has the engine for good.
    bool closing() const { return closing_; }
    void drop_pending() { pending_.reset(); }
    void end_close() { closed_.store(true, std::memory_order_seq_cst); }
    bool closed() const { return closed_.load(std::memory_order_relaxed); }

private:
    template <typename Engine>
    void deliver(Engine& engine, const PendingEvents<Flow>& pending) {
        for (Flow* flow : pending.opened) events_->opened(flow->id, engine.make_receiver(*flow));
        for (const auto& [rank, cause] : pending.lost) events_->lost(rank, cause);
    }

    ChannelEvents* const events_;
    OwnerFlag owner_;
    std::atomic<bool> closed_{false};
    std::atomic<int> delivering_{0};
    ReadyList<Flow> ready_;
    std::unique_ptr<PendingEvents<Flow>> pending_;
    bool closing_ = false;
};

/// A thread's stay in an engine. Not held if the engine is closed.
template <typename Engine>
class EngineGuard {
public:
    explicit EngineGuard(Engine& engine) : engine_(engine), held_(engine.enter()) {}
    ~EngineGuard() {
        if (held_) engine_.exit();
    }
    EngineGuard(const EngineGuard&) = delete;
    explicit operator bool() const { return held_; }

private:
    Engine& engine_;
    const bool held_;
};

}  // namespace tutti
