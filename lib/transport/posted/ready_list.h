// The list of the flows of an engine that have something to send.
#pragma once

#include <atomic>

namespace tutti {

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
