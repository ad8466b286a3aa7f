#include "comm/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/catching.h"
#include "base/hash.h"
#include "comm/communicator.h"
#include "net/serving.h"

namespace tutti {
namespace {

constexpr int64_t longest_join_ms = 10'000;

// The members derive the smaller communicator's id from what they all know, so concurrent shrinks
// of other communicators do not disturb them. If a member has had that id, all try the next one.
uint32_t id_of_smaller(uint32_t whole, uint64_t call) {
    const uint64_t hash = mix_hash(mix_hash(hash_basis, whole), call);
    return Endpoint::first_hashed_id | static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace

/// One thread's call.
class Recovery::Turn {
public:
    explicit Turn(Recovery& recovery) : recovery_(recovery), own_(!recovery.busy_.exchange(true)) {
        if (own_) recovery_.interrupted_ = false;
    }
    ~Turn() {
        if (own_) recovery_.busy_ = false;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    Result<> check(std::string_view name) const {
        if (own_) return {};
        return fail(Code::invalid,
                    "{}: another thread is inside tutti_comm_agree, tutti_comm_shrink or "
                    "tutti_comm_grow on this communicator",
                    name)
            .advice("make these calls from one thread at a time")
            .on(recovery_.core_.rank());
    }

private:
    Recovery& recovery_;
    const bool own_;
};

class Recovery::Outcome final : public Event {
public:
    explicit Outcome(Consensus& consensus) : consensus_(consensus) {}
    bool happened() override { return consensus_.over(); }
    void check_clock() override { consensus_.resend(); }

private:
    Consensus& consensus_;
};

Result<> Recovery::may_begin(std::string_view name) const {
    TUTTI_TRY(core_.may_call());
    if (auto open = core_.may_start(); !open) return wrap(std::move(open).error(), name);
    return {};
}

Result<RankSet> Recovery::check_leavers(std::string_view name,
                                        const std::vector<Rank>& leavers) const {
    RankSet outside(core_.size());
    for (const Rank rank : leavers) {
        std::string_view problem;
        if (rank < 0 || rank >= core_.size())
            problem = "which the communicator lacks";
        else if (rank == core_.rank())
            problem = "which is this rank itself";
        else if (!outside.insert(rank))
            problem = "twice";
        if (!problem.empty())
            return fail(Code::invalid, "{}: the ranks to leave out name rank {}, {}", name, rank,
                        problem)
                .advice("name ranks from 0 to {} once each, without this rank", core_.size() - 1)
                .on(core_.rank());
    }
    return outside;
}

// The outcome of this rank's call, which may be an error.
Decision Recovery::decide(std::string_view name, const AgreementCall& call, bool first,
                          Deadline deadline) {
    Consensus& consensus = core_.consensus;
    consensus.learn(core_.failure_protocol.gone());
    first ? consensus.begin(call) : consensus.begin_round(call);
    if (interrupted_) interrupt();
    Outcome outcome(consensus);
    if (!progress_.wait(outcome, deadline)) {
        const RankSet missing = consensus.missing();
        const std::string late = missing.empty()
                                     ? "no decision came"
                                     : fmt::format("{} did not call it", ranks_text(missing));
        consensus.give_up(Code::timeout,
                          fmt::format("{}: {} within {} ms", name, late, core_.limit_ms(-1)));
    }
    return consensus.outcome();
}

void Recovery::interrupt() {
    interrupted_ = true;
    if (!busy_) return;
    core_.consensus.give_up(Code::aborted,
                            fmt::format("rank {} called tutti_comm_abort", core_.rank()));
    core_.endpoint->wakeups().ring();
}

Result<uint64_t> Recovery::agree(std::string_view name, uint64_t bits) {
    TUTTI_TRY(may_begin(name));
    const Turn turn(*this);
    TUTTI_TRY(turn.check(name));
    AgreementCall call;
    call.leavers = RankSet(core_.size());
    call.bits = bits;
    const Decision decision = decide(name, call, true, Deadline::after_ms(core_.limit_ms(-1)));
    if (decision.code != Code::ok)
        return tl::unexpected<Error>(
            {decision.code, decision.culprit, 0, decision.text, {}, core_.rank()});
    note_lost(decision.gone);
    return decision.bits;
}

Result<std::shared_ptr<Communicator>> Recovery::shrink(std::string_view name,
                                                       const std::vector<Rank>& leavers) {
    TUTTI_TRY(may_begin(name));
    TUTTI_ASSIGN(const RankSet outside, check_leavers(name, leavers));
    const Turn turn(*this);
    TUTTI_TRY(turn.check(name));
    Shrinking steps(core_.rank(), core_.size(), outside);
    return take_steps(name, steps, Deadline::after_ms(core_.limit_ms(-1)));
}

Result<std::shared_ptr<Communicator>> Recovery::make_call(std::string_view name, const Body& body) {
    TUTTI_TRY(may_begin(name));
    const Turn turn(*this);
    TUTTI_TRY(turn.check(name));
    const auto decide_here = [&](const AgreementCall& call, bool first, Deadline deadline) {
        return decide(name, call, first, deadline);
    };
    return body({core_, progress_, interrupted_, decide_here});
}

Result<std::shared_ptr<Communicator>> Recovery::take_steps(std::string_view name, Shrinking& steps,
                                                           Deadline deadline) {
    using Kind = Shrinking::Action::Kind;
    NewPart part;
    bool first = true;
    Shrinking::Action action =
        steps.begin(id_of_smaller(core_.group.id(), core_.consensus.calls()));
    for (;;) {
        if (action.drop_part && part.comm) {
            part.comm->destroy();
            part = {};
        }
        if (action.kind == Kind::finish) break;
        action =
            action.kind == Kind::agree
                ? steps.decided(decide(name, action.call, std::exchange(first, false), deadline))
                : steps.made(make(action.group, part, deadline));
    }
    if (action.error) return tl::unexpected(*std::move(action.error));
    if (action.has_intrinsics) part.comm->core_.use_intrinsics(std::move(part.intrinsics));
    note_lost(action.group.gone);
    return std::move(part.comm);
}

// All members do this at the same time; a member's death ends the waits in it.
Shrinking::OwnPart Recovery::make(const SmallerGroup& group, NewPart& part,
                                  Deadline deadline) const {
    Shrinking::OwnPart made;
    if (!core_.endpoint->claim_ids(group.id, 1)) {
        made.error = fail_rank(Code::system, core_.rank(), "rank {} has had a communicator {}",
                               core_.rank(), group.id)
                         .advice("call shrink again")
                         .on(core_.rank())
                         .value();
        return made;
    }
    auto complete = catching([&]() -> Result<> {
        part.comm = Communicator::make_part(core_, group.members, group.id);
        if (part.comm->size() == 1) return {};
        FailureProtocol& failures = part.comm->core_.failure_protocol;
        const net::CancelWaitsWhen over([&] { return failures.check_unreachable(); });
        part.intrinsics = part.comm->core_.join_intrinsics(deadline.within_ms(longest_join_ms));
        if (auto cause = failures.fatal_error()) return tl::unexpected(cause->error);
        return {};
    });
    if (!complete) made.error = on_rank(core_.rank(), std::move(complete).error());
    made.has_intrinsics = part.intrinsics.group != nullptr;
    return made;
}

void Recovery::note_lost(const RankSet& gone) {
    const std::lock_guard lock(mutex_);
    lost_ = gone.ranks();
}

std::vector<Rank> Recovery::lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
}

}  // namespace tutti
