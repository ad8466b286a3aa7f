// Strict checking: each call is proposed up the tree and, once all ranks have proposed the same,
// agreed on from the root down, before any rank starts it.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "control/protocol_context.h"

namespace tutti {

/// Any thread may call any function.
class StrictCalls {
public:
    StrictCalls(ProtocolContext& context, FailureState& state);

    void propose(const Tag& tag) { handle_proposal(context_.rank, tag); }
    bool agreed(uint64_t sequence) const {
        return agreed_.load(std::memory_order_acquire) >= sequence;
    }
    /// Handles a child's proposal, or the parent's message that a call is agreed on.
    void receive(Rank from, const ControlMessage& message);
    /// An epoch is over: drops its proposals. With the mutex held.
    void begin_epoch() { proposals_.clear(); }

private:
    struct Proposal {
        Tag tag;
        Rank first = nobody;
        uint32_t have = 0;
    };
    void handle_proposal(Rank from, const Tag& tag);

    ProtocolContext& context_;
    FailureState& state_;
    // Neighbours in the whole tree: once ranks have left, no call is agreed on.
    const Rank parent_;
    const std::vector<Rank> children_;
    std::atomic<uint64_t> agreed_{0};
    std::map<uint64_t, Proposal> proposals_;  // the context's mutex guards it
};

}  // namespace tutti
