// A communicator's queues of operations, and the deadlines and verdicts that end the operations.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "control/failure_protocol.h"
#include "record/recorder.h"
#include "run/request.h"
#include "wait/owner.h"
#include "wait/waiting.h"

namespace tutti {

/// A thread may touch the queue and drive the head only while it holds `owner`. It takes `owner`
/// for one pass at a time, and never waits for it while it holds something else.
struct alignas(no_share_bytes) Stream {
    OwnerFlag owner;
    Request* head = nullptr;
    Request* tail = nullptr;
    std::atomic<uint32_t> queued{0};      // only the owner writes it, so no locked instruction
    std::atomic<Rank> waits_for{nobody};  // the head's, as of the last deadline check

    void count(int32_t more) {
        queued.store(queued + static_cast<uint32_t>(more), std::memory_order_relaxed);
    }
};

/// Any thread may call a function that does not require the stream's owner.
class Streams {
public:
    Streams(const Config& config, Rank rank, FailureProtocol& failure_protocol, Recorder& recorder,
            Waiting& waiting);

    int count() const { return static_cast<int>(streams_.size()); }
    Stream& operator[](uint32_t stream) { return streams_[stream]; }

    // The caller owns the stream.
    void push(Stream& stream, Request& request);  // polled from now on if it is external
    void drive(Stream& stream, bool& moved);
    /// Gives the stream's owner flag back. Applies verdicts if there is an alarm.
    void release(Stream& stream);

    /// Drives every queued operation whose stream no other thread owns. True if any was queued.
    bool drive_all(bool& moved);
    /// Ends the operations for which the failure protocol has a verdict, and tells it when all
    /// streams are idle.
    void apply_verdicts();
    /// Raises a failure for an operation that is past its deadline or cannot continue.
    void check_deadlines();
    /// A rank for which an operation waits, as of the last deadline check; nobody if none is known.
    Rank waits_for() const;
    /// True if a released external operation is pending, or another thread owns a busy stream.
    bool busy_outside();
    /// Called before and after a sleep: peers ring meanwhile when they move a head.
    bool arm(bool on);
    /// Takes every stream: no other thread drives until the list is destroyed.
    std::vector<std::unique_ptr<OwnerGuard>> hold_all();
    /// Ends every queued operation, because the communicator was destroyed. `last` is the number of
    /// the last operation. Returns the number of the last operation before the first that failed or
    /// was ended here.
    uint64_t end_all(uint64_t last);
    /// The same number at the end of the process: ends no operation, runs no callback, and no new
    /// operation may begin. 0 if a stream cannot be taken before the deadline.
    uint64_t last_before_end(const std::atomic<uint64_t>& sequence, Deadline deadline);
    /// Writes the operations before the first failure, once: the last few to the log, all known
    /// ones to a file if one is configured.
    void dump_once();

private:
    void complete(Request& request, const Error* error);
    void pop(Stream& stream, const Error* error);
    void succeed(Stream& stream);
    void fail_head(Stream& stream, const Failure& failure);
    void purge(Stream& stream);
    void use_arrived(Stream& stream);
    bool survives(const Request& request) const;
    void apply_verdicts_once();
    bool ended_by_loss(Request& request, bool moved);
    void check_deadline(Stream& stream, int64_t now);
    void note_failed(Code code, uint64_t sequence);
    Error deadline_passed(const Request& request, Rank waits_for) const;
    Error annotate(const Error& error, const Tag& tag) const;

    const Config& config_;
    const Rank rank_;
    const bool strict_;
    FailureProtocol& failure_protocol_;
    Recorder& recorder_;
    Waiting& waiting_;
    std::vector<Stream> streams_;
    std::atomic<uint32_t> asked_{0};  // calls of apply_verdicts()
    std::atomic<bool> dumped_{false};
    std::atomic<uint64_t> first_failed_{~uint64_t{0}};  // other ranks may not have failed it
};

}  // namespace tutti
