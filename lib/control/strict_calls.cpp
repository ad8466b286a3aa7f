#include "control/strict_calls.h"

#include "control/tree.h"

namespace tutti {
namespace {

constexpr std::size_t max_proposals = std::size_t{1} << 20;  // 100 MB or so

}  // namespace

StrictCalls::StrictCalls(ProtocolContext& context, FailureState& state)
    : context_(context),
      state_(state),
      parent_(tree_parent(context.rank)),
      children_(tree_children(context.rank, context.size)) {}

void StrictCalls::handle_proposal(Rank from, const Tag& tag) {
    std::unique_lock lock(context_.mutex);
    if (!state_.may_run(tag)) return;
    if (proposals_.size() >= max_proposals && proposals_.count(tag.sequence) == 0) {
        lock.unlock();
        return state_.raise(
            fail_rank(Code::no_memory, from,
                      "rank {} is more than {} calls ahead of other ranks, the limit of "
                      "TUTTI_CHECK=strict",
                      from, max_proposals)
                .advice("set TUTTI_CHECK=frames, or let that rank wait for its calls more often")
                .value());
    }
    Proposal& p = proposals_[tag.sequence];
    if (p.have == 0) {
        p.tag = tag;
        p.first = from;
    } else if (p.tag != tag) {
        // The text names the rank whose proposal came first; both ranks may head subtrees of this
        // rank.
        ControlMessage message = context_.make(ControlMessage::Kind::mismatch, {});
        message.tag.sequence = tag.sequence;
        message.tag.root = p.first;
        message.rank = from;
        message.text = fmt::format("collective mismatch: rank {} called {}, rank {} called {}",
                                   p.first, describe_call(p.tag), from, describe_call(tag));
        lock.unlock();
        return state_.raise_mismatch(message);
    }
    if (++p.have <= children_.size()) return;
    proposals_.erase(tag.sequence);
    if (parent_ != nobody)
        return context_.host.send_control(parent_,
                                          context_.make(ControlMessage::Kind::propose, tag));
    for (Rank child : children_)
        context_.host.send_control(child, context_.make(ControlMessage::Kind::agreed, tag));
    agreed_.store(tag.sequence, std::memory_order_release);
    lock.unlock();
    context_.host.apply_verdicts();
}

void StrictCalls::receive(Rank from, const ControlMessage& message) {
    if (message.kind == ControlMessage::Kind::propose) return handle_proposal(from, message.tag);
    for (Rank child : children_) context_.host.send_control(child, message);
    // The agreement on a later call may have arrived first.
    if (!agreed(message.tag.sequence))
        agreed_.store(message.tag.sequence, std::memory_order_release);
    context_.host.apply_verdicts();
}

}  // namespace tutti
