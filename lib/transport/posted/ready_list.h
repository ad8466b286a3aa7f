// The list of the flows of an engine that have something to send.
#pragma once

#include <atomic>

namespace tutti {

/// Flows with something to send. Any thread may add one; the owner takes them in the order in which
/// they were added. A flow has `std::atomic<bool> ready` and `Flow* next_ready`.
template <typename Flow>
class ReadyList {
public:
    /// Whether the list has added flows that the owner has not taken.
    bool added() const { return newest_.load(std::memory_order_seq_cst) != nullptr; }
    void add(Flow& flow) {
        if (flow.ready.exchange(true, std::memory_order_seq_cst)) return;
        Flow* top = newest_.load(std::memory_order_relaxed);
        do {
            flow.next_ready = top;
        } while (!newest_.compare_exchange_weak(top, &flow, std::memory_order_seq_cst));
    }

    // For the owner.
    void append(Flow& flow) {
        if (!flow.ready.exchange(true, std::memory_order_seq_cst)) link(flow);
    }
    void take_added() {
        if (!added()) return;
        // Pairs with add(): messages published before add() are visible after this.
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
    /// Takes the oldest flow, and clears `ready` before the owner reads the flow's queues: a thread
    /// that publishes later adds the flow again.
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
