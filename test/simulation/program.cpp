#include "simulation/program.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "simulation/rank.h"
#include "simulation/world.h"

namespace simulation {
namespace {

constexpr int max_attempts = 5;
constexpr uint32_t first_hashed_id = 0x8000'0000;  // Endpoint's

// As in lib/comm/recovery.cpp.
uint32_t id_of_smaller(uint32_t whole, uint64_t call) {
    const uint64_t hash = mix_hash(mix_hash(hash_basis, whole), call);
    return first_hashed_id | static_cast<uint32_t>(hash ^ hash >> 32);
}

std::vector<Rank> in_job(const SimComm& comm, const RankSet& ranks) {
    std::vector<Rank> of_job;
    for (const Rank rank : ranks.ranks()) of_job.push_back(comm.group().in_job(rank));
    return of_job;
}

Rank culprit_of(const SimComm& comm, Rank rank) {
    return rank == nobody ? nobody : comm.group().in_job(rank);
}

}  // namespace

Program::Program(SimRank& rank, SimComm& whole)
    : rank_(rank), world_(rank.world()), comm_(&whole) {}

Program::~Program() = default;

// ---- the script ------------------------------------------------------------------------------

void Program::turn() {
    if (comm_->is_destroyed()) return;
    switch (doing_) {
        case Doing::nothing:
            return next();
        case Doing::entering:
            return enter();
        case Doing::collective:
            comm_->drive();
            if (request_->done()) collective_ended();
            return;
        case Doing::agree:
        case Doing::shrink:
            if (comm_->consensus().over()) return agreement_ended();
            if (world_.now() - began_ns_ >= world_.scenario().timeout_ms * ms)
                comm_->consensus().give_up(Code::timeout, "it did not end in time");
            if (comm_->consensus().over()) agreement_ended();
            return;
        case Doing::pausing:
        case Doing::making:
            return;
    }
}

void Program::check_clocks() {
    if (comm_->is_destroyed() || doing_ == Doing::nothing || doing_ == Doing::pausing ||
        doing_ == Doing::making)
        return;
    world_.checks().deadline(rank_.number(), began_ns_,
                             doing_ == Doing::shrink ? "shrink" : "a call");
    if (doing_ == Doing::collective || doing_ == Doing::entering)
        world_.checks().running(rank_.number(), comm_->id());
    if (doing_ != Doing::entering) return comm_->check_clocks();
    if (const auto error = comm_->check_entering(began_ns_, ask_ns_)) {
        end_call();
        collective_failed(*error);
    }
}

void Program::pause_then(int64_t longest_ns) {
    doing_ = Doing::pausing;
    world_.after(world_.random().spread(1 * us, std::max<int64_t>(longest_ns, 2 * us)), [this] {
        rank_.run([this] {
            doing_ = Doing::nothing;
            turn();
        });
    });
}

void Program::next() {
    if (recovering_) return recover();
    const auto& generations = world_.scenario().generations;
    if (generation_ >= generations.size()) return finish();
    const auto& steps = generations[generation_];
    if (step_ == steps.size()) {
        if (generation_ + 1 == generations.size()) return finish();
        return begin_shrink({});
    }
    begin(steps[step_++]);
}

void Program::begin(const Step& step) {
    const auto chosen =
        static_cast<Rank>(step.chosen % static_cast<uint64_t>(comm_->group().size()));
    switch (step.kind) {
        case Step::Kind::collective:
            return begin_collective(step);
        case Step::Kind::agree:
            return begin_agree();
        case Step::Kind::revoke:
            if (comm_->group().rank() == chosen) comm_->revoke();
            return pause_then(step.before_ns);
        case Step::Kind::shrink:
            return begin_shrink({});
        case Step::Kind::shrink_without:
            if (comm_->group().size() == 1) return begin_shrink({});
            world_.checks().left_out(comm_->id(), comm_->group().in_job(chosen));
            world_.checks().verdicts().left_out(comm_->group().in_job(chosen), comm_->id());
            if (comm_->group().rank() == chosen) return finish_early();
            return begin_shrink({chosen});
        case Step::Kind::abort:
            if (comm_->group().rank() == chosen) begin_abort(step.before_ns);
            return pause_then(step.before_ns);
        case Step::Kind::mismatch:
            return comm_->group().size() == 1 ? pause_then(step.before_ns) : begin_mismatch(step);
    }
}

void Program::begin_call(Doing doing) {
    doing_ = doing;
    began_ns_ = world_.now();
    ask_ns_ = Inquiry::ask_at(began_ns_, began_ns_, world_.scenario().timeout_ms);
    interrupted_ = false;
    comm_->set_waiting(true);
    rank_.enter_call();
}

void Program::end_call() {
    comm_->set_waiting(false);
    rank_.leave_call();
    doing_ = Doing::nothing;
}

void Program::finish() {
    doing_ = Doing::nothing;
    rank_.destroy_all();
}

void Program::finish_early() {
    rank_.leave_early();
    finish();
}

// ---- collectives -----------------------------------------------------------------------------

uint32_t Program::input(Rank member, Rank to, std::size_t i) const {
    const auto in_job = static_cast<uint32_t>(comm_->group().in_job(member));
    return static_cast<uint32_t>(mix_hash(generation_ * 100 + step_, in_job) % 1000) * 1000 +
           static_cast<uint32_t>(to) * 50 + static_cast<uint32_t>(i);
}

void Program::begin_collective(const Step& step) {
    collective_ = step;
    const Rank size = comm_->group().size(), rank = comm_->group().rank();
    root_ = step.collective == Collective::broadcast
                ? static_cast<Rank>(step.chosen % static_cast<uint64_t>(size))
                : 0;
    plan_ = &comm_->plan(step, root_);
    const auto blocks = static_cast<std::size_t>(size);
    const bool pairs = step.collective == Collective::alltoall;
    const bool gathers = step.collective == Collective::allgather;
    in_.assign(step.count * (pairs ? blocks : 1), 0);
    out_.assign(step.count * (pairs || gathers ? blocks : 1), 0xdead'beef);
    for (std::size_t i = 0; i < in_.size(); ++i)
        in_[i] = pairs ? input(rank, static_cast<Rank>(i / step.count), i % step.count)
                       : input(rank, 0, i);
    if (step.collective == Collective::broadcast) out_ = in_;
    request_ = std::make_unique<Request>();
    request_->in = step.collective == Collective::broadcast ? out_.data() : in_.data();
    request_->out = out_.data();
    begin_call(Doing::entering);
    enter();
}

void Program::enter() {
    Error error;
    switch (comm_->submit(*request_, *plan_, error)) {
        case SimComm::Entered::waits:
            return;
        case SimComm::Entered::refused:
            end_call();
            return collective_failed(error);
        case SimComm::Entered::running:
            doing_ = Doing::collective;
            if (request_->done()) collective_ended();
    }
}

void Program::collective_ended() {
    end_call();
    const Code code = request_->code;
    world_.note("rank {}: {} #{} of communicator {}: {}", rank_.number(),
                collective_name(collective_.collective), operation_number(request_->tag.sequence),
                comm_->id(), code_name(code));
    world_.mix(static_cast<uint64_t>(code), static_cast<uint64_t>(rank_.number()));
    if (code != Code::ok) return collective_failed(request_->error);
    if (!rank_.is_dead() && !is_odd_) check_result();
    if (mismatching_ == Mismatching::no || after_mismatching_call(code))
        pause_then(collective_.before_ns);
}

void Program::collective_failed(const Error& error) {
    world_.checks().verdicts().failed(rank_.number(), comm_->id(), comm_->members(), error,
                                      mismatching_ != Mismatching::no);
    if (mismatching_ != Mismatching::no && error.code == Code::mismatch) {
        after_mismatching_call(error.code);
        return pause_then(collective_.before_ns);
    }
    mismatching_ = Mismatching::no;
    failed(error);
}

// ---- mismatches ------------------------------------------------------------------------------

// One rank calls a barrier, an allreduce, or the same collective with another count. A rank that
// needs nothing from it may succeed, and gets the error in its next call; so all ranks that succeed
// make a second call, and each rank gets the error once.
void Program::begin_mismatch(const Step& step) {
    Step call = step;
    world_.checks().verdicts().mismatching(comm_->id());
    is_odd_ = comm_->group().rank() ==
              static_cast<Rank>(step.chosen % static_cast<uint64_t>(comm_->group().size()));
    if (is_odd_ && step.collective == Collective::barrier)
        call.collective = Collective::allreduce;
    else if (is_odd_ && (step.chosen >> 32 & 1) == 0)
        call.collective = Collective::barrier;
    else if (is_odd_)
        ++call.count;
    mismatching_ = Mismatching::first_call;
    begin_collective(call);
}

// True once the rank has got the error; else it makes its second call.
bool Program::after_mismatching_call(Code code) {
    is_odd_ = false;
    if (code == Code::mismatch || mismatching_ == Mismatching::second_call) {
        if (code == Code::ok)
            world_.checks().fail("rank {}: a mismatch on communicator {} is not reported",
                                 rank_.number(), comm_->id());
        mismatching_ = Mismatching::no;
        return true;
    }
    mismatching_ = Mismatching::second_call;
    Step second = collective_;
    second.collective = Collective::barrier;
    begin_collective(second);
    return false;
}

void Program::check_result() const {
    const Rank size = comm_->group().size(), rank = comm_->group().rank();
    for (std::size_t i = 0; i < out_.size(); ++i) {
        const std::size_t block = i / collective_.count, at = i % collective_.count;
        uint32_t expected = 0;
        switch (collective_.collective) {
            case Collective::barrier:
                return;
            case Collective::allreduce:
                for (Rank member = 0; member < size; ++member) expected += input(member, 0, i);
                break;
            case Collective::broadcast:
                expected = input(root_, 0, i);
                break;
            case Collective::allgather:
                expected = input(static_cast<Rank>(block), 0, at);
                break;
            default:
                expected = input(static_cast<Rank>(block), rank, at);
        }
        if (out_[i] != expected)
            return world_.checks().fail(
                "rank {}: element {} of {} on communicator {} is {}, not {}", rank_.number(), i,
                collective_name(collective_.collective), comm_->id(), out_[i], expected);
    }
}

// ---- aborts ----------------------------------------------------------------------------------

// A second thread aborts a little later, whatever this one does then.
void Program::begin_abort(int64_t longest_ns) {
    world_.after(world_.random().spread(1 * us, std::max<int64_t>(longest_ns, 2 * ms)),
                 [this, comm = comm_] { rank_.run([this, comm] { abort(*comm); }); });
}

// As Communicator::abort.
void Program::abort(SimComm& comm) {
    if (comm.is_destroyed()) return;
    comm.abort();
    rank_.turn_soon();
    const bool recovers =
        doing_ == Doing::agree || doing_ == Doing::shrink || doing_ == Doing::making;
    if (&comm != comm_ || !recovers) return;
    interrupted_ = true;
    world_.checks().interrupted(rank_.number(), comm.id(), call_);
    if (doing_ != Doing::making) interrupt();
}

void Program::interrupt() {
    comm_->consensus().give_up(Code::aborted, "this rank has aborted");
}

// ---- agreements ------------------------------------------------------------------------------

void Program::begin_agree() {
    begin_call(Doing::agree);
    AgreementCall call;
    call.leavers = RankSet(comm_->group().size());
    call.bits = ~(uint64_t{1} << comm_->group().rank() % 64);
    comm_->consensus().learn(comm_->failures().gone());
    call_ = comm_->consensus().calls() + 1;
    comm_->consensus().begin(call);
    turn();
}

void Program::begin_shrink(const std::vector<Rank>& leavers) {
    RankSet outside(comm_->group().size());
    for (const Rank rank : leavers) outside.insert(rank);
    begin_call(Doing::shrink);
    shrinking_.emplace(comm_->group().rank(), comm_->group().size(), outside);
    call_ = comm_->consensus().calls() + 1;
    part_ = nullptr;
    auto action = shrinking_->begin(id_of_smaller(comm_->id(), comm_->consensus().calls()));
    comm_->consensus().learn(comm_->failures().gone());
    comm_->consensus().begin(action.call);
    turn();
}

void Program::agreement_ended() {
    const Decision decision = comm_->consensus().outcome();
    if (doing_ == Doing::shrink) return take(shrinking_->decided(decision));
    end_call();
    world_.note("rank {}: agree {} of communicator {}: {} bits {:x}", rank_.number(), call_,
                comm_->id(), code_name(decision.code), decision.bits);
    world_.checks().outcome(
        rank_.number(), comm_->id(), call_,
        {decision.code, culprit_of(*comm_, decision.culprit),
         decision.code == Code::ok ? decision.bits : 0, 0,
         decision.code == Code::ok ? in_job(*comm_, decision.gone) : std::vector<Rank>{}});
    if (decision.code != Code::ok)
        return failed(
            {decision.code, decision.culprit, 0, decision.text, {}, comm_->group().rank()});
    agreed_ = true;
    pause_then(100 * us);
}

// As Recovery::take_steps.
void Program::take(Shrinking::Action action) {
    using Kind = Shrinking::Action::Kind;
    if (action.drop_part && part_) {
        world_.checks().verdicts().left_early(rank_.number(), part_->id());
        part_->destroy();
        part_ = nullptr;
    }
    switch (action.kind) {
        case Kind::make:
            return make(action.group);
        case Kind::finish:
            return shrunk(action);
        case Kind::agree:
            comm_->consensus().learn(comm_->failures().gone());
            comm_->consensus().begin_round(action.call);
            if (interrupted_) interrupt();
            return turn();
    }
}

void Program::make(const SmallerGroup& group) {
    doing_ = Doing::making;
    own_part_ = {};
    group_ = group;
    world_.shrinking(rank_.number());
    if (rank_.is_dead()) return;
    if (!rank_.clients().claim(group.id)) {
        own_part_.error = fail(Code::system, "the id {} is taken", group.id).value();
        return take(shrinking_->made(own_part_));
    }
    std::vector<Rank> members;
    for (const Rank member : group.members) members.push_back(comm_->group().in_job(member));
    const auto own = std::find(members.begin(), members.end(), rank_.number());
    if (own == members.end())
        world_.checks().fail("rank {} makes a part without itself", rank_.number());
    part_ = &rank_.make_comm(
        Group(group.id, std::move(members), static_cast<Rank>(own - members.begin())));
    world_.after(world_.random().spread(10 * us, 3 * ms),
                 [this] { rank_.run([this] { made(); }); });
}

// Joining the intrinsics may fail on any rank, for want of memory or because a member has died.
void Program::made() {
    const uint64_t percent = world_.scenario().bad_parts_percent;
    own_part_.has_intrinsics = !world_.random().percent(10);
    if (auto cause = part_->failures().fatal_error())
        own_part_.error = cause->error;
    else if (percent > 0 && world_.random().percent(percent))
        own_part_.error = fail(Code::no_memory, "there is no memory for the part").value();
    doing_ = Doing::shrink;
    if (!world_.is_broken(Broken::no_confirm)) return take(shrinking_->made(own_part_));
    Shrinking::Action early;
    early.kind = Shrinking::Action::Kind::finish;
    early.group = group_;
    early.error = own_part_.error;
    shrunk(early);
}

void Program::shrunk(Shrinking::Action& action) {
    end_call();
    Outcome outcome;
    if (action.error) {
        // A rank that lacks its part returns its own error, the others return another one.
        outcome.code = action.error->code == Code::no_memory ? Code::system : action.error->code;
        if (outcome.code != Code::system) outcome.culprit = culprit_of(*comm_, action.error->rank);
    } else {
        outcome.id = action.group.id;
        outcome.bits = action.has_intrinsics;
        outcome.gone = in_job(*comm_, action.group.gone);
    }
    world_.note("rank {}: shrink {} of communicator {}: {} {}", rank_.number(), call_, comm_->id(),
                outcome.text(), action.error ? action.error->message : "");
    world_.checks().outcome(rank_.number(), comm_->id(), call_, outcome);
    world_.mix(outcome.id, static_cast<uint64_t>(rank_.number()));
    if (action.error) return failed(*action.error);
    SimComm* const old = std::exchange(comm_, part_);
    part_ = nullptr;
    ++generation_;
    step_ = 0;
    attempts_ = 0;
    recovering_ = agreed_ = false;
    late_ = nobody;
    if (world_.scenario().destroys_old) old->destroy();
    pause_then(100 * us);
}

// ---- errors ----------------------------------------------------------------------------------

void Program::failed(const Error& error) {
    world_.note("rank {}: error of communicator {}: {} (rank {}): {}", rank_.number(), comm_->id(),
                code_name(error.code), error.rank, error.message);
    if (!rank_.is_dead())
        world_.checks().error(rank_.number(), comm_->id(), comm_->members(), error);
    // The others' calls go on without a rank that has given its own up.
    if (std::exchange(interrupted_, false) || ++attempts_ > max_attempts ||
        world_.scenario().policy == Policy::destroy)
        return finish_early();
    recovering_ = true;
    agreed_ = false;
    if (world_.scenario().policy == Policy::revoke_and_shrink) comm_->revoke();
    pause_then(500 * us);
}

void Program::recover() {
    if (world_.scenario().policy == Policy::agree_and_shrink && !agreed_) return begin_agree();
    begin_shrink({});
}

}  // namespace simulation
