#include "run/streams.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/fd.h"
#include "base/log.h"
#include "run/health_error.h"
#include "run/publish.h"
#include "wait/shared_wait_deadline.h"

namespace tutti {
namespace {

constexpr std::size_t logged_operations = 8;
// A rank that has not answered for this long, or for half of the deadline, counts as stopped, not
// only as late.
constexpr int64_t stopped_ms = 1000;
// After a loss, other ranks need no longer than this to pass on the lost rank's data.
constexpr int64_t passed_on_ns = 500'000'000;

}  // namespace

Streams::Streams(const Config& config, Rank rank, FailureProtocol& failure_protocol,
                 Recorder& recorder, Waiting& waiting)
    : config_(config),
      rank_(rank),
      strict_(config.check == Check::strict),
      failure_protocol_(failure_protocol),
      recorder_(recorder),
      waiting_(waiting),
      streams_(static_cast<std::size_t>(config.nrings)) {}

// ---- driving: with the stream owned ----------------------------------------------------------

void Streams::push(Stream& stream, Request& request) {
    if (stream.tail) {
        stream.tail->next = &request;
    } else {
        stream.head = &request;
    }
    stream.tail = &request;
    stream.count(1);
    if (request.external) waiting_.watch();
}

void Streams::drive(Stream& stream, bool& moved) {
    while (Request* request = stream.head) {
        if (failure_protocol_.alarm()) {
            purge(stream);
            if (stream.head != request) {
                moved = true;
                continue;
            }
        }
        Operation& operation = *request->operation;
        if (!request->released.load(std::memory_order_acquire)) [[unlikely]]
            return;
        if (!request->started) {
            if (strict_ && !failure_protocol_.strict().agreed(request->tag.sequence)) return;
            request->started = true;
            operation.start(request->tag, request->in, request->out);
            moved = true;  // no thread has announced a sleep on this head yet
        }
        const Poll poll = operation.progress();
        if (poll.pending()) {
            moved |= poll.moved;
            if (failure_protocol_.alarm() && ended_by_loss(*request, poll.moved)) continue;
            return;
        }
        moved = true;
        if (poll.failure) {
            fail_head(stream, *poll.failure);
        } else {
            succeed(stream);
        }
    }
}

void Streams::pop(Stream& stream, const Error* error) {
    Request* request = stream.head;
    stream.head = request->next;
    if (!stream.head) stream.tail = nullptr;
    stream.count(-1);
    complete(*request, error);
}

void Streams::succeed(Stream& stream) {
    const Request& request = *stream.head;
    // A lost rank that did not take all data of this operation takes part in no later operation.
    if (failure_protocol_.alarm() && request.operation->untaken()) [[unlikely]]
        failure_protocol_.fail_after_loss(request.tag.sequence + 1);
    pop(stream, nullptr);
}

/// Completes a request that is off its queue; error is null if it succeeded. Do not touch the
/// request afterwards: its owner may see the code and free it.
void Streams::complete(Request& request, const Error* error) {
    const Code code = error ? error->code : Code::ok;
    Operation& operation = *request.operation;
    if (error) {
        const SharedWaitDeadline together;
        // A device operation runs from its launch on.
        if (request.started || request.external) operation.cancel();
        request.error = annotate(*error, request.tag);
    }
    if (request.armed) operation.arm(false);
    if (request.stuck_ns != 0) [[unlikely]] {
        request.stuck_ns = 0;
        waiting_.unwatch();
    }
    if (request.external) {
        waiting_.unwatch();
        request.ended();
    }
    recorder_.end(request.tag, code, request.driven_by_issuer);
    if (error) {
        note_failed(code, request.tag.sequence);
        dump_once();
    }
    request.plan->busy.store(false, std::memory_order_release);
    publish(request, code, waiting_);
}

// Other ranks may still be in the failed operation and must not believe that this rank has
// completed it: end_all() returns a lower number. A mismatch fails on every rank, so it is not
// noted.
void Streams::note_failed(Code code, uint64_t sequence) {
    if (code == Code::mismatch) return;
    uint64_t first = first_failed_.load(std::memory_order_relaxed);
    while (sequence < first &&
           !first_failed_.compare_exchange_weak(first, sequence, std::memory_order_relaxed)) {
    }
}

void Streams::dump_once() {
    if (dumped_.exchange(true)) return;
    log::info("rank {}: an operation failed; the last operations were\n{}", rank_,
              recorder_.text(rank_, logged_operations));
    const std::string& prefix = config_.dump;
    if (prefix.empty()) return;
    const std::string path = fmt::format("{}.{}.jsonl", prefix, rank_);
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const auto dumped = file ? recorder_.dump(file.get(), rank_)
                             : Result<>(fail_errno(errno, fmt::format("opening {}", path)));
    if (dumped) return;
    log::warn(wrap(dumped.error(), "cannot write the flight recorder").on(rank_));
}

// An error that this rank has reported may already name the operation.
Error Streams::annotate(const Error& error, const Tag& tag) const {
    const std::string call = describe_call(tag);
    if (error.reporter == rank_ && error.message.find(call) != std::string::npos) return error;
    return on_rank(rank_, wrap(error, call).value());
}

// Reports to all ranks an error that the operation itself has found.
void Streams::fail_head(Stream& stream, const Failure& failure) {
    const Request& request = *stream.head;
    const Error& cause = failure.error;
    Error error = on_rank(rank_, cause);
    if (cause.message.empty())
        error.message = fmt::format("rank {}: {}", cause.rank, code_name(cause.code));
    else if (error.rank == nobody)
        error.rank = rank_;
    if (error.code == Code::mismatch) {
        failure_protocol_.raise_mismatch(request.tag, cause.rank, failure.got);
    } else {
        failure_protocol_.raise(error);
    }
    if (auto verdict = failure_protocol_.verdict(request.tag.sequence)) error = *verdict;
    pop(stream, &error);
}

/// Messages that a lost rank had sent may still arrive, from its channel or through other ranks:
/// run the operations that they complete before any operation fails for the loss.
void Streams::use_arrived(Stream& stream) {
    while (Request* request = stream.head) {
        const bool may_run = request->released.load(std::memory_order_acquire) &&
                             !request->external &&
                             (!strict_ || failure_protocol_.strict().agreed(request->tag.sequence));
        if (!may_run) return;
        if (!std::exchange(request->started, true))
            request->operation->start(request->tag, request->in, request->out);
        if (request->operation->progress().code != Code::ok) return;
        succeed(stream);
    }
}

bool Streams::survives(const Request& request) const {
    return !strict_ && !request.external &&
           failure_protocol_.tolerated_loss(request.tag.sequence).rank != nobody;
}

/// Called after a loss, for a head that the arrived data does not complete. True: it must end.
/// False during a grace time, because the report of a loss may overtake the last data.
bool Streams::ended_by_loss(Request& request, bool moved) {
    const auto lost = failure_protocol_.tolerated_loss(request.tag.sequence);
    if (lost.rank == nobody) return false;
    const int64_t now = now_ns();
    // No doorbell rings when the time is over, so waiting threads sleep for short times only.
    if (request.stuck_ns == 0) waiting_.watch();
    if (moved || request.stuck_ns == 0) request.stuck_ns = now;
    const bool lacks = request.operation->waits_for() == lost.rank;
    if (now - request.stuck_ns < (lacks ? lost.grace_ns : passed_on_ns)) return false;
    failure_protocol_.fail_after_loss(request.tag.sequence);
    return true;
}

/// Ends the operations for which the failure protocol has a verdict.
void Streams::purge(Stream& stream) {
    if (stream.head && failure_protocol_.ended()) use_arrived(stream);
    Request** link = &stream.head;
    Request* before = nullptr;
    while (Request* request = *link) {
        // An operation that is being launched ends once its issuing thread has seen the alarm; a
        // device's operation, once the operations before it are over.
        const bool may_end = request->released.load(std::memory_order_acquire) &&
                             (!request->external || request->may_end());
        const auto verdict = may_end && !survives(*request)
                                 ? failure_protocol_.verdict(request->tag.sequence)
                                 : std::nullopt;
        if (!verdict) {
            before = request;
            link = &request->next;
            continue;
        }
        *link = request->next;
        if (!request->next) stream.tail = before;
        stream.count(-1);
        complete(*request, &*verdict);
    }
}

void Streams::release(Stream& stream) {
    stream.owner.give();
    // Either this thread sees the alarm here, or the thread that raised it sees the stream free.
    if (failure_protocol_.alarm()) apply_verdicts();
}

bool Streams::drive_all(bool& moved) {
    bool busy = false;
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        busy = true;
        if (!stream.owner.try_take()) continue;
        drive(stream, moved);
        release(stream);
    }
    return busy;
}

Rank Streams::waits_for() const {
    for (const Stream& stream : streams_) {
        const Rank rank = stream.waits_for.load(std::memory_order_relaxed);
        if (stream.queued.load(std::memory_order_relaxed) > 0 && rank != nobody) return rank;
    }
    return nobody;
}

bool Streams::busy_outside() {
    bool busy = false;
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        OwnerGuard owned(stream.owner, OwnerGuard::Try{});
        busy |= !owned.held();
        for (const Request* r = owned.held() ? stream.head : nullptr; r; r = r->next)
            busy |= r->external && r->released.load(std::memory_order_acquire);
        const bool mine = owned.held();
        owned.drop();
        if (mine && failure_protocol_.alarm()) apply_verdicts();
    }
    return busy;
}

// ---- trouble ---------------------------------------------------------------------------------

// Reads failing_epoch() before it checks the streams: during a mismatch no operation may start, so
// a stream seen idle stays idle. A mismatch that comes during the check calls this again. The owner
// of a taken stream applies the verdicts when it releases the stream.
void Streams::apply_verdicts() {
    // Another thread's call that finds a stream taken here leaves that stream to this call: this
    // one sees the new number after it has given the stream back.
    uint32_t call = asked_.fetch_add(1, std::memory_order_seq_cst) + 1;
    uint32_t applied = 0;
    do {
        applied = call;
        apply_verdicts_once();
        call = asked_.load(std::memory_order_seq_cst);
    } while (call != applied);
}

void Streams::apply_verdicts_once() {
    const auto failing = failure_protocol_.failing_epoch();
    bool idle = true;
    for (Stream& stream : streams_) {
        OwnerGuard owned(stream.owner, OwnerGuard::Try{});
        if (!owned.held()) {
            idle = false;
            continue;
        }
        purge(stream);
        idle &= stream.head == nullptr;
    }
    if (idle && failing) failure_protocol_.quiet(*failing, operation_number(recorder_.last()));
}

std::vector<std::unique_ptr<OwnerGuard>> Streams::hold_all() {
    std::vector<std::unique_ptr<OwnerGuard>> all;
    for (Stream& stream : streams_) all.push_back(std::make_unique<OwnerGuard>(stream.owner));
    return all;
}

uint64_t Streams::end_all(uint64_t last) {
    dumped_ = true;  // the program destroys it: no failure to dump
    const Error why =
        fail_rank(Code::aborted, rank_,
                  "this rank destroyed the communicator while the operation was pending")
            .advice("wait for every request before tutti_comm_destroy")
            .value();
    for (Stream& stream : streams_) {
        const OwnerGuard owned(stream.owner);
        while (stream.head) pop(stream, &why);
    }
    return std::min(last, first_failed_ - 1);
}

uint64_t Streams::last_before_end(const std::atomic<uint64_t>& sequence, Deadline deadline) {
    uint64_t first_pending = std::numeric_limits<uint64_t>::max();
    for (Stream& stream : streams_) {
        const OwnerGuard owned(stream.owner, deadline);
        if (!owned.held()) return 0;
        if (stream.head) first_pending = std::min(first_pending, stream.head->tag.sequence);
    }
    return std::min({sequence.load(), first_pending - 1, first_failed_ - 1});
}

// ---- clocks ----------------------------------------------------------------------------------

void Streams::check_deadlines() {
    const int64_t now = now_ns();
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        OwnerGuard owned(stream.owner, OwnerGuard::Try{});
        if (!owned.held()) continue;
        check_deadline(stream, now);
        owned.drop();
        if (failure_protocol_.alarm()) apply_verdicts();
    }
}

void Streams::check_deadline(Stream& stream, int64_t now) {
    for (Request* r = stream.head; r; r = r->next) {
        if (r->began_ns == 0) {
            r->began_ns = now;
            r->stall_ns = Inquiry::ask_at(now, now, r->timeout_ms);
        }
        if (const Code code = r->started ? r->operation->health() : Code::ok; code != Code::ok)
            return failure_protocol_.raise(health_error(rank_, code, describe_call(r->tag)));
        const Rank waits_for = r->started ? r->operation->waits_for() : nobody;
        if (r == stream.head) stream.waits_for.store(waits_for, std::memory_order_relaxed);
        if (r->timeout_ms > 0 && ns_to_ms(now - r->began_ns) >= r->timeout_ms)
            return failure_protocol_.raise(deadline_passed(*r, waits_for));
        if (now >= r->stall_ns && r == stream.head) {
            r->stall_ns = Inquiry::ask_at(r->began_ns, now, r->timeout_ms);
            failure_protocol_.inquiry().stalled(r->tag);
        }
    }
}

// Blames ranks that were late at the last inquiry; ranks that were late only at an earlier one may
// have called since.
Error Streams::deadline_passed(const Request& request, Rank waits_for) const {
    const Late late = failure_protocol_.inquiry().late(request.tag.sequence);
    Rank culprit = waits_for;
    std::string why = "no other rank answered";
    std::string advice;  // empty: the code's own advice
    // A stopped rank is blamed first: other ranks may only be waiting for it, or be late because of
    // it.
    const auto stopped = late.silent_for(std::min(request.timeout_ms / 2, stopped_ms));
    const auto silent = stopped.empty() && !late.answered ? late.silent_for(0) : stopped;
    if (!silent.empty()) {
        culprit = silent.front();
        const std::string names = Late::names_of(silent);
        why = fmt::format("{} did not answer when asked", names);
        advice = fmt::format(
            "look at {}: the process may be stopped (a debugger, SIGSTOP), or lack processor time "
            "or its network; if it is only slow, raise TUTTI_TIMEOUT_MS",
            names);
    } else if (late.answered) {
        culprit = late.first();
        why = fmt::format("{} {} not called it", late.names(),
                          late.ranks.size() == 1 ? "has" : "have");
    } else if (const auto [waits, last] = late.chain(rank_); waits != nobody) {
        culprit = last;
        why = last == waits ? fmt::format("rank {} is still in an earlier call", waits)
                            : fmt::format(
                                  "rank {} is still in an earlier call, where nothing more "
                                  "came from rank {}",
                                  waits, last);
    } else if (waits_for != nobody) {
        why = fmt::format("nothing more came from rank {}", waits_for);
    } else if (late.first() != nobody) {
        culprit = late.first();
        why = fmt::format("{} called it late or not at all", late.names());
    }
    return {.code = Code::timeout,
            .rank = culprit,
            .message = fmt::format("timed out after {} ms in {}: {}", request.timeout_ms,
                                   describe_call(request.tag), why),
            .advice = std::move(advice),
            .reporter = rank_};
}

/// False if another thread owns a stream: it may leave a head there on which no sleep is announced.
bool Streams::arm(bool on) {
    bool all = true;
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        OwnerGuard owned(stream.owner, OwnerGuard::Try{});
        all &= owned.held();
        if (!owned.held() || !stream.head || !stream.head->started) continue;
        stream.head->operation->arm(on);
        stream.head->armed = on;
    }
    return all;
}

}  // namespace tutti
