#include "comm/growth/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/catching.h"
#include "base/told_error.h"
#include "job/job_stores.h"
#include "job/records/failure_notice.h"
#include "net/auth.h"
#include "net/serving.h"

namespace tutti {
namespace {

constexpr std::string_view grow_name = "tutti_comm_grow";
constexpr std::size_t meeting_bytes = 12;
constexpr int64_t tell_newcomers_ms = 2000;
constexpr int64_t look_again_ms = 20;  // in the queue, while newcomers are missing
constexpr int64_t failure_comes_ms = 1000;
constexpr int64_t present_ms = 5000;  // for the newcomers to begin to join
constexpr int64_t longest_meeting_ms = 60'000;
constexpr int64_t rank_0_late_ms = 15'000;  // after the deadline: it may wait for newcomers then
constexpr int queue_again_ms = 50;
constexpr int most_meetings = 3;

// The number of newcomers and its complement: the bitwise and of all ranks' bits shows whether they
// gave the same one. The topmost bit: the communicator works here.
constexpr uint64_t works_bit = uint64_t{1} << 63, complement_shift = 16, number_mask = 0xffff;
static_assert(most_newcomers < number_mask);

uint64_t bits_of(Rank newcomers, bool works) {
    const auto number = static_cast<uint64_t>(newcomers);
    return number | (~number & number_mask) << complement_shift | (works ? works_bit : 0);
}
bool is_same_number(uint64_t bits) {
    return ((bits ^ bits >> complement_shift) & number_mask) == number_mask;
}

int64_t meeting_limit_ms(const Config& config) {
    return config.timeout_ms == 0 ? longest_meeting_ms
                                  : std::min(config.timeout_ms, longest_meeting_ms);
}

/// A store that does not answer, although there is time, is on a silent host.
bool is_gone(const Error& error, Deadline deadline) {
    return !deadline.passed() && (error.code == Code::peer_lost || error.code == Code::timeout);
}

/// For errors of agreements.
tl::unexpected<Error> failed(const Decision& decision, Rank rank) {
    return tl::unexpected<Error>({decision.code, decision.culprit, 0, decision.text, {}, rank});
}

/// The end of another process may be the cause, so that a further attempt may succeed. A process
/// that ends closes connections during the handshake, as one with another secret does.
bool may_pass(Code code, int attempts) {
    return code == Code::peer_lost || code == Code::timeout || code == Code::system ||
           (code == Code::auth && attempts < most_meetings);
}

}  // namespace

/// Ends a wait early.
class Growing::Stop final : public Event {
public:
    explicit Stop(const Growing& growth) : growth_(growth) {}
    bool happened() override { return growth_.stopped(); }
    void check_clock() override {}

private:
    const Growing& growth_;
};

bool Growing::stopped() const {
    return rounds_.interrupted || core_.failure_protocol.ended();
}

void Growing::pause() {
    Stop stop(*this);
    rounds_.progress.wait(stop, Deadline::after_ms(look_again_ms));
}

Bytes Growing::GrowthAttempt::encode() const {
    Error told = error.value_or(Error{.code = Code::ok});
    told.reporter = nobody;  // each rank that gets it names itself
    return ByteWriter()
        .put_text(generation)
        .put_text(store)
        .put(told.code)
        .put(told.rank)
        .put_text(error ? error_text(told) : "")
        .take();
}

Growing::GrowthAttempt Growing::GrowthAttempt::decode(ByteView bytes, Rank size) {
    constexpr uint32_t most = AgreementMessage::max_payload_bytes;
    ByteReader in(bytes);
    GrowthAttempt meeting;
    meeting.generation = in.get_text(most);
    meeting.store = in.get_text(most);
    const auto code = in.get<Code>();
    const auto rank = in.get<Rank>();
    std::string text = in.get_text(most);
    if (!in.at_end())
        meeting.error = Error{Code::system, nobody, 0, "another rank than rank 0 decided",
                              "call tutti_comm_grow again"};
    else if (code != Code::ok)
        meeting.error = told_error(code, rank, size, std::move(text));
    return meeting;
}

Result<std::shared_ptr<Communicator>> Growing::run() {
    TUTTI_TRY(agree_on_number());
    const auto deadline = Deadline::after_ms(core_.limit_ms(-1));
    auto part = attempt(deadline);
    for (int attempts = 1; !part && attempts < most_meetings && may_pass_; ++attempts) {
        spoil(part.error());
        part = attempt(deadline);
    }
    if (!part) {
        spoil(part.error());
        return part;
    }
    // Tells the newcomers. Ranks that die meanwhile are lost ranks of the new communicator.
    (void)(*part)->recovery().agree(grow_name, 1);
    forget_attempt(Deadline::after_ms(tell_newcomers_ms));
    return part;
}

Result<std::shared_ptr<Communicator>> Growing::attempt(Deadline deadline) {
    may_pass_ = false;
    generation_.clear();
    TUTTI_ASSIGN(generation_, agree_on_meeting(deadline));
    auto part = join_meeting();
    if (auto all = confirm(part); !all) {
        if (part) (*part)->destroy();
        return tl::unexpected(std::move(all).error());
    }
    return part;
}

// Newcomers with a seat wait for the members: they must hear of the failure, also if rank 0 died.
void Growing::spoil(const Error& why) {
    const Deadline soon = Deadline::after_ms(tell_newcomers_ms);
    if (!open_store(soon)) return;
    std::string generation = generation_;
    if (generation.empty()) {
        auto present = store_->try_get(attempt_key(), soon);
        if (!present || !*present) return;
        generation = **std::move(present);
    }
    FailureNotice(generation, core_.rank(), grown_size()).post(*store_, why);
    forget_attempt(soon);
}

void Growing::forget_attempt(Deadline deadline) {
    if (core_.rank() == 0) (void)store_->remove(attempt_key(), deadline);
}

// Each member that gets the decision reports the same rank.
Result<> Growing::check_members(const Decision& decision) const {
    if (decision.code != Code::ok) return failed(decision, core_.rank());
    const std::vector<Rank> gone = decision.gone.ranks();
    if (gone.empty()) return {};
    return fail_rank(Code::peer_lost, gone.front(), "{}: rank {} {}", grow_name, gone.front(),
                     core_.failure_protocol.has_left(gone.front()) ? "has left" : "is lost")
        .advice("call tutti_comm_shrink first, and let the smaller communicator grow")
        .on(core_.rank());
}

Result<> Growing::agree_on_number() {
    auto own_failure = core_.failure_protocol.fatal_error();
    AgreementCall call;
    call.kind = AgreementCall::Kind::grow;
    call.leavers = RankSet(core_.size());
    call.bits = bits_of(newcomers_, !own_failure);
    TUTTI_ASSIGN(const std::string own_meeting, net::random_hex(meeting_bytes));
    const ByteView bytes = as_bytes(own_meeting);
    call.payload.assign(bytes.begin(), bytes.end());
    const Decision decision = rounds_.decide(call, true, Deadline::after_ms(core_.limit_ms(-1)));
    TUTTI_TRY(check_members(decision));
    if ((decision.bits & works_bit) == 0) {
        // The other rank's failure may be on the way.
        Stop stop(*this);
        if (!own_failure && rounds_.progress.wait(stop, Deadline::after_ms(failure_comes_ms)))
            own_failure = core_.failure_protocol.fatal_error();
        Error cause = own_failure ? own_failure->error
                                  : Error{Code::aborted, nobody, 0,
                                          "the communicator has failed on another rank"};
        cause.advice = "call tutti_comm_shrink first, and let the communicator that it makes grow";
        return wrap(std::move(cause), grow_name);
    }
    if (!is_same_number(decision.bits))
        return fail(Code::mismatch,
                    "{}: the ranks gave different numbers of newcomers; rank {} gave {}", grow_name,
                    core_.rank(), newcomers_)
            .advice("give the same number on every rank")
            .on(core_.rank());
    meeting_ = as_text(decision.payload);
    return {};
}

Result<std::string> Growing::agree_on_meeting(Deadline deadline) {
    const int64_t limit_ms = core_.limit_ms(-1);
    GrowthAttempt meeting;
    if (core_.rank() == 0) {
        auto gathered = catching([&] { return gather(deadline); });
        if (gathered)
            meeting.generation = *std::move(gathered);
        else
            meeting.error = std::move(gathered).error();
        meeting.store = new_store_;
    }
    AgreementCall call;
    call.kind = AgreementCall::Kind::grow;
    call.leavers = RankSet(core_.size());
    if (core_.rank() == 0) call.payload = meeting.encode();
    const auto patience = Deadline::after_ms(limit_ms == 0 ? 0 : limit_ms + rank_0_late_ms);
    const Decision decision = rounds_.decide(call, false, patience);
    TUTTI_TRY(check_members(decision));
    meeting = GrowthAttempt::decode(decision.payload, core_.size());
    if (meeting.error) return wrap(*std::move(meeting.error), grow_name);
    new_store_ = std::move(meeting.store);
    return std::move(meeting.generation);
}

// A job of one rank has not needed its store yet.
Result<> Growing::open_store(Deadline deadline) {
    if (store_) return {};
    Config config = core_.config();
    if (new_store_.empty()) {
        store_ = core_.endpoint->store();
        if (store_) return {};
        if (config.store.empty())
            return fail(Code::invalid,
                        "this job of one rank has no store, in which newcomers find it")
                .advice("set TUTTI_STORE before tutti_comm_create")
                .on(core_.rank());
        TUTTI_ASSIGN(store_, job_stores::open(config, deadline));
        return {};
    }
    config.store = new_store_;
    config.store_hosted = config.store_in_job = true;
    TUTTI_ASSIGN(store_, job_stores::open_anew(config, deadline));
    return {};
}

Result<> Growing::take_over_store(Deadline deadline) {
    auto taken = job_stores::take_over(core_.config(), deadline);
    if (!taken) {
        Error error = std::move(taken).error();
        error.advice =
            "let TUTTI_STORE name a place on a host that remains, too (tcp://a:29500,tcp://b:29500)"
            ", or use a store outside of the job";
        return wrap(std::move(error), "no newcomers can come");
    }
    store_ = *std::move(taken);
    new_store_ = store_->describe();
    return {};
}

// If the process that serves a tcp store has ended, this rank serves it anew.
Result<std::string> Growing::gather(Deadline deadline) {
    const net::CancelWaitsWhen over([this] { return core_.failure_protocol.check_unreachable(); });
    TUTTI_TRY(open_store(deadline));
    for (;;) {
        auto gathered = gather_in_store(deadline);
        if (gathered) return gathered;
        if (stopped()) return stop_error();
        if (!is_gone(gathered.error(), deadline)) return gathered;
        TUTTI_TRY(take_over_store(deadline));
    }
}

Result<std::size_t> Growing::count_waiting(Deadline deadline) {
    TUTTI_TRY(open_store(deadline));
    for (;;) {
        NewcomerQueue queue(*store_, RankOwner::this_process(machine_id()));
        const auto waiting =
            queue.find_waiting(most_newcomers, deadline.within_ms(store_answer_ms));
        if (waiting) return waiting->size();
        if (!is_gone(waiting.error(), deadline)) return tl::unexpected(waiting.error());
        TUTTI_TRY(take_over_store(deadline));
    }
}

// Gives seats to newcomers until an attempt finds all of them alive.
Result<std::string> Growing::gather_in_store(Deadline deadline) {
    NewcomerQueue queue(*store_, RankOwner::this_process(machine_id()));
    const auto wanted = static_cast<std::size_t>(newcomers_);
    for (; !stopped(); pause()) {
        const Deadline soon = deadline.within_ms(store_answer_ms);
        TUTTI_ASSIGN(const auto waiting, queue.find_waiting(wanted, soon));
        came_ = std::max(came_, waiting.size());
        if (waiting.size() == wanted) {
            std::string generation = fmt::format("g{}.{}", meeting_, ++attempts_);
            TUTTI_TRY(store_->set(attempt_key(), generation, soon));
            TUTTI_TRY(queue.seat(waiting, generation, core_.size(), soon));
            TUTTI_ASSIGN(const bool present, all_present(generation, deadline));
            if (present) return generation;
        }
        if (deadline.passed())
            return fail(Code::timeout, "{} of {} newcomer{} came within {} ms (store {})", came_,
                        newcomers_, newcomers_ == 1 ? "" : "s", core_.limit_ms(-1),
                        store_->describe())
                .advice(
                    "start {} with TUTTI_JOIN=1, and the same TUTTI_STORE, TUTTI_JOB and "
                    "TUTTI_SECRET",
                    newcomers_ == 1 ? "it" : "them")
                .on(core_.rank());
    }
    return stop_error();
}

tl::unexpected<Error> Growing::stop_error() const {
    if (auto over = core_.failure_protocol.fatal_error()) return tl::unexpected(over->error);
    return fail(Code::aborted, "rank {} called tutti_comm_abort", core_.rank()).on(core_.rank());
}

// A newcomer that publishes its record is alive. If it dies later, the others hear of it, as when a
// job starts.
Result<bool> Growing::all_present(const std::string& generation, Deadline deadline) {
    const auto patience = deadline.within_ms(present_ms);
    const FailureNotice notice(generation, 0, grown_size());
    for (Rank rank = core_.size(); rank < grown_size();) {
        if (const auto failure = notice.published(*store_)) {
            if (!may_pass(failure->code, attempts_)) return tl::unexpected(*failure);
            return false;
        }
        TUTTI_ASSIGN(const auto record,
                     store_->try_get(PeerDirectory::key(generation, rank), deadline));
        if (record) {
            ++rank;
        } else if (patience.passed() || stopped()) {
            notice.post(*store_, Error{Code::peer_lost, rank, 0,
                                       fmt::format("rank {}, a newcomer, did not come", rank)});
            return false;
        } else {
            pause();
        }
    }
    return true;
}

// For waits that serve the new communicator only. With manual progress, this thread has to hear of
// the members meanwhile.
bool Growing::members_failed() {
    if (!std::exchange(pumping_, true)) {  // a handler may wait, too
        core_.endpoint->pump();
        pumping_ = false;
    }
    return core_.failure_protocol.check_unreachable();
}

// A member that dies or aborts ends the others' waits.
Result<std::shared_ptr<Communicator>> Growing::join_meeting() {
    Config config = core_.config();
    config.rank = core_.rank();
    config.size = grown_size();
    const auto limit = TimeLimit::from_now(meeting_limit_ms(config));
    config.join_limit = limit;
    config.shares_store = !core_.endpoint->has_program_store();
    const net::CancelWaitsWhen over([this] { return members_failed(); });
    TUTTI_TRY(open_store(limit.by));
    return catching([&] { return Communicator::join(std::move(config), generation_, store_); });
}

// If a part is missing, all members return the error of the same rank if it can be told.
Result<> Growing::confirm(const Result<std::shared_ptr<Communicator>>& part) {
    constexpr uint64_t made_bit = 1;
    AgreementCall call;
    call.kind = AgreementCall::Kind::confirm;
    call.leavers = RankSet(core_.size());
    call.bits = part ? made_bit : 0;
    if (!part) {
        GrowthAttempt failed;
        failed.error = part.error();
        call.payload = failed.encode();
    }
    const int64_t limit_ms = core_.limit_ms(-1);
    const auto patience = Deadline::after_ms(limit_ms == 0 ? 0 : limit_ms + longest_meeting_ms);
    const Decision decision = rounds_.decide(call, false, patience);
    TUTTI_TRY(check_members(decision));
    if ((decision.bits & made_bit) != 0) return {};
    const auto told = decision.payload.empty()
                          ? std::nullopt
                          : GrowthAttempt::decode(decision.payload, grown_size()).error;
    may_pass_ = !told || may_pass(told->code, 0);
    if (told) return wrap(*told, grow_name);
    if (!part) return wrap(part.error(), grow_name);
    return fail(Code::system, "{}: another member could not join the newcomers", grow_name)
        .advice("read the error of that rank, which names the cause")
        .on(core_.rank());
}

namespace {

Result<> check_store(std::string_view name, const Config& config) {
    if (!config.by_handles) return {};
    return fail(Code::invalid,
                "{}: the processes of this communicator have met by handles, so there is no store "
                "in which newcomers could find it",
                name)
        .advice("call tutti_comm_reconfigure with the new processes' handles")
        .on(config.rank);
}

}  // namespace

Result<std::shared_ptr<Communicator>> grow(Communicator& comm, Rank newcomers) {
    return comm.recovery().make_call(
        grow_name, [&](const Recovery::Rounds& rounds) -> Result<std::shared_ptr<Communicator>> {
            if (newcomers < 1 || newcomers > most_newcomers)
                return fail(Code::invalid, "{}: {} is no number of newcomers", grow_name, newcomers)
                    .advice("give a number from 1 to {}", most_newcomers)
                    .on(comm.rank());
            TUTTI_TRY(check_store(grow_name, rounds.core.config()));
            return Growing(rounds, newcomers).run();
        });
}

Result<std::size_t> count_waiting(Communicator& comm) {
    constexpr std::string_view name = "tutti_comm_waiting";
    std::size_t count = 0;
    const auto counted = comm.recovery().make_call(
        name, [&](const Recovery::Rounds& rounds) -> Result<std::shared_ptr<Communicator>> {
            TUTTI_TRY(check_store(name, rounds.core.config()));
            auto waiting =
                Growing(rounds, 1).count_waiting(Deadline::after_ms(rounds.core.limit_ms(-1)));
            if (!waiting) return wrap(std::move(waiting).error(), name);
            count = *waiting;
            return nullptr;
        });
    if (!counted) return tl::unexpected(counted.error());
    return count;
}

// ---- newcomers -------------------------------------------------------------------------------

namespace {

/// One attempt: nullptr if the members have given it up.
Result<std::shared_ptr<Communicator>> take_part(Config config, const NewcomerSeat& seat,
                                                std::shared_ptr<Store> store) {
    config.rank = seat.rank;
    config.size = seat.size;
    config.join_limit = TimeLimit::from_now(meeting_limit_ms(config));
    TUTTI_ASSIGN(auto part,
                 Communicator::join(std::move(config), seat.generation, std::move(store)));
    auto agreed = part->recovery().agree(grow_name, 1);
    const std::vector<Rank> lost = part->recovery().lost();
    const auto members_left =
        std::count_if(lost.begin(), lost.end(), [&](Rank rank) { return rank < seat.members; });
    if (agreed && members_left < seat.members) return part;
    part->destroy();
    if (!agreed && !may_pass(agreed.error().code, most_meetings))
        return tl::unexpected(agreed.error());
    return std::shared_ptr<Communicator>();
}

Result<std::shared_ptr<Store>> open_running_store(Config& config, Deadline deadline) {
    if (!config.store_hosted) config.store_hosted = config.store_in_job = true;
    config.shares_store = true;
    return job_stores::open_anew(config, deadline);
}

/// Waits while the store is not served, or serves other jobs only: a member may serve it anew.
Result<std::shared_ptr<Store>> await_running_store(Config& config, Deadline deadline) {
    std::optional<Error> closed;  // more precise than an attempt that the deadline has cut short
    for (;;) {
        auto opened = open_running_store(config, deadline);
        if (opened) return opened;
        Error& error = opened.error();
        const bool is_closed = config.store_in_job && is_job_closed(error);
        if (is_closed) closed = error;
        if ((!is_closed && error.code != Code::peer_lost) || deadline.passed())
            return tl::unexpected(closed && error.code == Code::timeout ? *closed : error);
        net::poll_serving(nullptr, queue_again_ms);
    }
}

}  // namespace

Result<std::shared_ptr<Communicator>> join_running_job(Config config,
                                                       std::shared_ptr<Store> own_store) {
    if (Completion::calling_back())
        return fail(Code::invalid, "a completion callback may not join a job")
            .advice("let another thread call tutti_comm_create");
    TUTTI_TRY(check_whole(config));
    if (config.refused) return tl::unexpected(*config.refused);
    const Deadline deadline = Deadline::after_ms(config.timeout_ms);
    config.join = false;
    const std::string doing = fmt::format("could not join job '{}'", config.job);
    std::optional<Error> last;
    int refusals = 0;
    // Kept from one attempt to the next: a directory forgets notices when their writer closes it.
    std::shared_ptr<Store> store = own_store;
    for (;;) {
        if (!store) {
            auto opened = await_running_store(config, deadline);
            if (!opened) return wrap(std::move(opened).error(), doing);
            store = *std::move(opened);
        }
        auto seat = Newcomer(*store, RankOwner::this_process(machine_id())).take_seat(deadline);
        // The process that served the store has ended. A member may serve it anew.
        if (!seat && is_gone(seat.error(), deadline) && !own_store) {
            store.reset();
            net::poll_serving(nullptr, queue_again_ms);
            continue;
        }
        if (!seat) {
            if (last) seat.error().message += fmt::format("; the last attempt: {}", last->message);
            return wrap(std::move(seat).error(), doing);
        }
        auto part = take_part(config, *seat, store);
        if (part && *part) return part;
        if (!part && part.error().code == Code::auth) ++refusals;
        if (!part && (!may_pass(part.error().code, refusals) || deadline.passed())) return part;
        last = part ? Error{Code::peer_lost, nobody, 0, "a member was lost, or gave up"}
                    : std::move(part).error();
        net::poll_serving(nullptr, queue_again_ms);
    }
}

}  // namespace tutti
