#include "control/agreement/shrinking.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr uint64_t made_bit = 1, intrinsics_bit = 2;

}  // namespace

Shrinking::Shrinking(Rank rank, Rank size, const RankSet& leavers)
    : rank_(rank), size_(size), leavers_(leavers) {}

Shrinking::Action Shrinking::begin(uint32_t first_free_id) {
    Action action;
    action.call.kind = AgreementCall::Kind::shrink;
    action.call.leavers = leavers_;
    action.call.first_free_id = first_free_id;
    return action;
}

Shrinking::Action Shrinking::decided(const Decision& decision) {
    if (decision.code != Code::ok)
        return fail_with({decision.code, decision.culprit, 0, decision.text, {}, rank_});
    if (attempts_ == 0) return make_next(decision);
    const bool is_made = (decision.bits & made_bit) != 0;
    if (is_made && decision.gone == group_.gone) {
        Action action;
        action.kind = Action::Kind::finish;
        action.group = group_;
        action.has_intrinsics = (decision.bits & intrinsics_bit) != 0;
        return action;
    }
    failures_ = decision.gone == group_.gone ? failures_ + 1 : 0;
    if (failures_ == max_failures) {
        if (part_.error) return fail_with(*part_.error);
        return fail_with({Code::system, nobody, 0,
                          "another rank could not make its part of the smaller communicator",
                          "read the error of that rank, which names the cause", rank_});
    }
    if (attempts_ == max_attempts)
        return fail_with({Code::peer_lost, nobody, 0,
                          fmt::format("ranks died in each of {} attempts to make the smaller "
                                      "communicator",
                                      attempts_),
                          "call shrink again", rank_});
    return make_next(decision);
}

Shrinking::Action Shrinking::make_next(const Decision& decision) {
    group_.id = decision.first_free_id;
    group_.gone = decision.gone;
    group_.members = RankSet::all(size_).without(decision.gone).ranks();
    Action action;
    action.kind = Action::Kind::make;
    action.drop_part = attempts_ > 0;
    action.group = group_;
    ++attempts_;
    return action;
}

Shrinking::Action Shrinking::made(OwnPart part) {
    part_ = std::move(part);
    Action action;
    action.call.kind = AgreementCall::Kind::confirm;
    action.call.leavers = leavers_;
    action.call.first_free_id = std::max(part_.first_free_id, group_.id + 1);
    action.call.bits =
        (part_.error ? 0 : made_bit) | (part_.has_intrinsics && !part_.error ? intrinsics_bit : 0);
    return action;
}

Shrinking::Action Shrinking::fail_with(Error error) const {
    Action action;
    action.kind = Action::Kind::finish;
    action.drop_part = attempts_ > 0;
    action.error = std::move(error);
    return action;
}

}  // namespace tutti
