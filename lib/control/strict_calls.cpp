#include "control/strict_calls.h"

#include "control/tree.h"

namespace tutti {
namespace {

constexpr std::size_t max_proposals = std::size_t{1} << 20;  // 100 MB or so

}  // namespace

StrictCalls::StrictCalls(Circle& circle, AgreementState& state)
    : circle_(circle),
      state_(state),
      parent_(tree_parent(circle.rank)),
      children_(tree_children(circle.rank, circle.size)) {}

void StrictCalls::take_proposal(Rank from, const Tag& tag) {
    std::unique_lock lock(circle_.mutex);
    if (!state_.takes(tag)) return;
    if (proposals_.size() >= max_proposals && proposals_.count(tag.sequence) == 0) {
        lock.unlock();
        return state_.raise(
            {Code::no_memory, from, 0,
             fmt::format("rank {} is more than {} calls ahead of others, and strict "
                         "checking keeps no more",
                         from, max_proposals)});
    }
    Proposal& p = proposals_[tag.sequence];
    if (p.have == 0) {
        p.tag = tag;
        p.first = from;
    } else if (p.tag != tag) {
        // Said from the point of view of whoever came first; both may be subtrees of this rank.
        ControlMessage news = circle_.make(ControlMessage::Kind::mismatch, {});
        news.tag.sequence = tag.sequence;
        news.tag.root = p.first;
        news.rank = from;
        news.text =
            fmt::format("the ranks called different things: rank {} called {}, rank {} called {}",
                        p.first, describe_call(p.tag), from, describe_call(tag));
        lock.unlock();
        return state_.raise_mismatch(news);
    }
    if (++p.have <= children_.size()) return;
    proposals_.erase(tag.sequence);
    if (parent_ != nobody)
        return circle_.host.send_control(parent_, circle_.make(ControlMessage::Kind::propose, tag));
    for (Rank child : children_)
        circle_.host.send_control(child, circle_.make(ControlMessage::Kind::agreed, tag));
    agreed_.store(tag.sequence, std::memory_order_release);
    lock.unlock();
    circle_.host.settle();
}

void StrictCalls::receive(Rank from, const ControlMessage& news) {
    if (news.kind == ControlMessage::Kind::propose) return take_proposal(from, news.tag);
    for (Rank child : children_) circle_.host.send_control(child, news);
    // Another message may have brought a later one before this.
    if (!agreed(news.tag.sequence)) agreed_.store(news.tag.sequence, std::memory_order_release);
    circle_.host.settle();
}

}  // namespace tutti
