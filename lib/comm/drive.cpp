// Running what was issued: driving streams, waiting, and ending operations when there is trouble.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/log.h"
#include "comm/backoff.h"
#include "comm/communicator.h"
#include "comm/owned.h"

namespace tutti {
namespace {

constexpr int64_t ms = 1'000'000;
constexpr int64_t first_stall_ns = 100 * ms;
constexpr int64_t stall_growth = 4;
constexpr int64_t longest_sleep_ms = 100;  // between looks at the clock
// Passes of a blocking call that do nothing but drive its own stream: small operations end in them.
constexpr int tight_passes = 1000;
constexpr std::size_t logged_operations = 8;
constexpr uint64_t number_mask = (uint64_t{1} << Tag::epoch_shift) - 1;

}  // namespace

// ---- driving: with the stream owned
// --------------------------------------------------------------

void Communicator::drive(Stream& stream, bool& moved) {
    while (Request* request = stream.head) {
        if (agreement_.alarm()) {
            purge(stream);
            if (stream.head != request) {
                moved = true;
                continue;
            }
        }
        Operation& operation = *request->operation;
        if (!request->started) {
            if (strict_ && !agreement_.agreed(request->tag.sequence)) return;
            request->started = true;
            operation.start(request->tag, request->in, request->out);
        }
        const Code code = operation.progress();
        if (code == Code::in_progress) {
            moved |= operation.moved();
            return;
        }
        moved = true;
        if (code == Code::ok) {
            pop(stream, code, {});
        } else {
            fail_head(stream, code);
        }
    }
}

void Communicator::pop(Stream& stream, Code code, const Error& error) {
    Request* request = stream.head;
    stream.head = request->next;
    if (!stream.head) stream.tail = nullptr;
    stream.queued.fetch_sub(1, std::memory_order_relaxed);
    complete(*request, code, error);
}

/// The request is out of its queue. Afterwards it may be gone: its owner sees the code and frees
/// it.
void Communicator::complete(Request& request, Code code, const Error& error) {
    Operation& operation = *request.operation;
    if (code != Code::ok) {
        if (request.started) operation.cancel();
        request.error = annotate(error, request.tag);
    }
    if (request.armed) operation.arm(false);
    recorder_.end(request.tag, code);
    if (code != Code::ok && !destroyed_) dump_once();
    request.plan->busy.store(false, std::memory_order_release);
    publish(request, code);
}

void Communicator::publish(Request& request, Code code) {
    if (request.keep) pending_.fetch_sub(1);
    request.completion.fire(code);
    request.code.store(code, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) endpoint_->ring();
}

// What led to the first failure: the end of it to the log, all of it to a file if one is wanted.
void Communicator::dump_once() {
    if (dumped_.exchange(true)) return;
    log::info("rank {}: an operation failed; the last ones were\n{}", rank_,
              recorder_.text(rank_, logged_operations));
    const std::string& prefix = endpoint_->config().dump;
    if (prefix.empty()) return;
    const std::string path = fmt::format("{}.{}.jsonl", prefix, rank_);
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const auto dumped = file ? recorder_.dump(file.get(), rank_)
                             : Result<>(fail_errno(errno, fmt::format("opening {}", path)));
    if (!dumped) log::warn("rank {}: no flight recorder: {}", rank_, dumped.error().message);
}

Error Communicator::annotate(const Error& error, const Tag& tag) const {
    Error annotated = error;
    annotated.message = fmt::format("rank {}: {}: {}", rank_, describe_call(tag), error.message);
    return annotated;
}

// What the operation itself found wrong becomes everybody's news.
void Communicator::fail_head(Stream& stream, Code code) {
    const Request& request = *stream.head;
    const Trouble trouble = request.operation->trouble();
    Error error{code, trouble.peer, 0, fmt::format("rank {}: {}", trouble.peer, code_name(code))};
    if (code == Code::mismatch) {
        agreement_.raise_mismatch(request.tag, trouble.peer, trouble.got);
    } else {
        agreement_.raise(error);
    }
    if (auto verdict = agreement_.verdict(request.tag.sequence)) error = *verdict;
    pop(stream, error.code, error);
}

/// Ends what the agreement says must end.
void Communicator::purge(Stream& stream) {
    Request** link = &stream.head;
    Request* before = nullptr;
    while (Request* request = *link) {
        const auto verdict = agreement_.verdict(request->tag.sequence);
        if (!verdict) {
            before = request;
            link = &request->next;
            continue;
        }
        *link = request->next;
        if (!request->next) stream.tail = before;
        stream.queued.fetch_sub(1, std::memory_order_relaxed);
        complete(*request, verdict->code, *verdict);
    }
}

void Communicator::release(Stream& stream) {
    stream.owner.store(false, std::memory_order_seq_cst);
    // Either we see the alarm here, or whoever raised it sees the stream free.
    if (agreement_.alarm()) settle_streams();
}

// ---- trouble
// -------------------------------------------------------------------------------------

void Communicator::settle() {
    settle_streams();
    bool moved = false;
    drive_transfers(moved, false);
    endpoint_->ring();
}

// A stream that is seen idle stays so: while there is a mismatch nothing new may start. A stream
// that is taken is settled by its owner when it lets go.
void Communicator::settle_streams() {
    bool idle = true;
    for (Stream& stream : streams_) {
        Owned owned(stream.owner, Owned::Try{});
        if (!owned.held()) {
            idle = false;
            continue;
        }
        purge(stream);
        idle &= stream.head == nullptr;
    }
    if (idle) agreement_.quiet(recorder_.last() & number_mask);
}

void Communicator::resume(uint64_t sequence) {
    std::vector<std::unique_ptr<Owned>> all;
    for (Stream& stream : streams_) all.push_back(std::make_unique<Owned>(stream.owner));
    sequence_ = sequence;
    if (intrinsics_.group) intrinsics_.group->reset();
}

void Communicator::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    channels_.opened(id, std::move(receiver));
}

// From here on ranks are those of the communicator; strangers have nothing to say in it.
void Communicator::news(Rank from, const News& news) {
    if (const Rank member = group_.of_job(from); member != nobody) agreement_.receive(member, news);
}

void Communicator::peer_lost(Rank peer, const std::string& cause) {
    if (const Rank member = group_.of_job(peer); member != nobody)
        agreement_.peer_lost(member, cause);
}

// ---- clocks
// --------------------------------------------------------------------------------------

void Communicator::look_at_clocks() {
    const int64_t now = now_ns();
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        Owned owned(stream.owner, Owned::Try{});
        if (!owned.held()) continue;
        look_at_clock(stream, now);
        owned.drop();
        if (agreement_.alarm()) settle_streams();
    }
    look_at_transfers(now);
}

void Communicator::look_at_clock(Stream& stream, int64_t now) {
    for (Request* r = stream.head; r; r = r->next) {
        if (r->began_ns == 0) {
            r->began_ns = now;
            r->stall_ns = now + first_stall_ns;
        }
        if (const Code code = r->started ? r->operation->health() : Code::ok; code != Code::ok)
            return agreement_.raise(
                {code, rank_, 0,
                 fmt::format("rank {} cannot go on with {}: {} (is /dev/shm or memory full?)",
                             rank_, describe_call(r->tag), code_name(code))});
        const Rank waits_for = r->started ? r->operation->waits_for() : nobody;
        if (r->timeout_ms > 0 && now >= r->began_ns + r->timeout_ms * ms) {
            const Rank suspect = agreement_.suspect(r->tag.sequence);
            const Rank culprit = suspect != nobody ? suspect : waits_for;
            return agreement_.raise(
                {Code::timeout, culprit, 0,
                 fmt::format(
                     "rank {} waited {} ms in {}: {}", rank_, r->timeout_ms, describe_call(r->tag),
                     suspect != nobody   ? fmt::format("rank {} has not called it", suspect)
                     : culprit != nobody ? fmt::format("nothing more came from rank {}", culprit)
                                         : "the others did not come")});
        }
        if (now >= r->stall_ns && r == stream.head) {
            r->stall_ns = now + (now - r->began_ns) * stall_growth;
            agreement_.stalled(r->tag);
        }
    }
}

// ---- waiting
// -------------------------------------------------------------------------------------

Result<> Communicator::finish_blocking(Request& request) {
    Stream& stream = streams_[request.plan->stream];
    const int passes = crowded_ ? 1 : tight_passes;
    for (int pass = 0; pass < passes; ++pass) {
        bool moved = false;
        drive(stream, moved);
        if (request.done()) break;
        if (!moved) endpoint_->progress();
    }
    release(stream);
    if (!request.done()) wait(request, -1);
    if (request.code.load(std::memory_order_acquire) == Code::ok) return {};
    return tl::unexpected(std::move(request.error));
}

bool Communicator::drive_all(bool& moved, bool may_open) {
    bool busy = false;
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        busy = true;
        {
            Owned owned(stream.owner, Owned::Try{});
            if (!owned.held()) continue;
            owned.keep();
        }
        drive(stream, moved);
        release(stream);
    }
    return busy | drive_transfers(moved, may_open);
}

bool Communicator::wait(Request& request, int64_t timeout_ms) {
    if (request.done()) return true;
    waiters_.fetch_add(1);
    const bool done = wait_driving(request, timeout_ms);
    if (waiters_.fetch_sub(1) == 1 && pending_.load() > 0 && !manual()) endpoint_->kick();
    return done;
}

bool Communicator::wait_driving(Request& request, int64_t timeout_ms) {
    const Deadline limit = Deadline::after_ms(timeout_ms);
    Backoff backoff(crowded_);
    for (;;) {
        bool moved = false;
        drive_all(moved);
        if (request.done()) return true;
        if (timeout_ms == 0) {
            progress();
            return request.done();
        }
        if (!moved) endpoint_->progress();
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::spin) continue;
        look_at_clocks();
        endpoint_->pump();
        if (limit.passed()) return request.done();
        if (turn == Backoff::Turn::look) continue;
        sleep_until_moved(request, limit.left_ms(longest_sleep_ms));
        backoff.woke();
    }
}

// Announces it, looks once more, sleeps: whatever comes after that look rings.
void Communicator::sleep_until_moved(const Request& request, int64_t limit_ms) {
    arm_all(true);
    sleepers_.fetch_add(1);
    bool moved = false;
    drive_all(moved);
    if (!moved && !request.done()) endpoint_->sleep(static_cast<int>(limit_ms));
    sleepers_.fetch_sub(1);
    arm_all(false);
}

void Communicator::arm_all(bool on) {
    for (Stream& stream : streams_) {
        if (stream.queued.load(std::memory_order_relaxed) == 0) continue;
        Owned owned(stream.owner, Owned::Try{});
        if (!owned.held() || !stream.head || !stream.head->started) continue;
        stream.head->operation->arm(on);
        stream.head->armed = on;
    }
    arm_transfers(on);
}

void Communicator::arm(bool on) {
    if (on) look_at_clocks();
    arm_all(on);
}

void Communicator::progress() {
    endpoint_->pump();
    endpoint_->progress();
    look_at_clocks();
    bool moved = false;
    drive_all(moved);
}

// The service thread's: non-blocking operations while no thread of the program waits.
bool Communicator::drive(bool& moved) {
    if (pending_.load() == 0 || waiters_.load() > 0) return false;
    drive_all(moved, false);
    if (!moved) endpoint_->progress();
    return pending_.load() > 0;
}

}  // namespace tutti
