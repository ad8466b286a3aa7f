// A communicator's queues of operations, and what ends the operations in them.
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
    std::atomic<uint32_t> queued{0};  // written by the owner alone, who needs no locked instruction
    std::atomic<Rank> waits_for{nobody};  // the head, when its clock was last looked at

    void count(int32_t more) {
        queued.store(queued + static_cast<uint32_t>(more), std::memory_order_relaxed);
    }
};

/// Any thread may call what does not ask for an owner.
class Streams {
public:
    Streams(const Config& config, Rank rank, FailureProtocol& failure_protocol, Recorder& recorder,
            Waiting& waiting);

    int count() const { return static_cast<int>(streams_.size()); }
    Stream& operator[](uint32_t stream) { return streams_[stream]; }

    // With the stream owned by the caller.
    void push(Stream& stream, Request& request);  // polled from now on if it is external
    void drive(Stream& stream, bool& moved);
    /// Gives the owner word back.
    void release(Stream& stream);

    /// Drives whatever is queued and that no other thread has. True if anything was queued.
    bool drive_all(bool& moved);
    /// Ends what the failure protocol says must end, and tells it when nothing is left.
    void apply_verdicts();
    /// Finds what is past its deadline or cannot go on.
    void check_deadlines();
    /// A rank that an operation waits for, as of the last look; nobody if none is known.
    Rank waits_for() const;
    /// Whether anything external that was released is under way.
    bool busy_outside();
    /// Before and after a sleep: peers ring when they move a head on.
    bool arm(bool on);
    /// Afterwards nobody drives anything until the list is gone.
    std::vector<std::unique_ptr<OwnerGuard>> hold_all();
    /// Ends everything for good: the communicator was destroyed. `last` is the number of the last
    /// operation; the result that of the last one before any that failed or was cut off.
    uint64_t end_all(uint64_t last);
    /// That result, when the process ends: nothing is cut off or called back, and no new operation
    /// begins. 0 if a stream cannot be looked into until the deadline.
    uint64_t last_before_end(const std::atomic<uint64_t>& sequence, Deadline deadline);
    /// Writes the operations before the first failure, once: the last few to the log, all known
    /// ones to a file if one is configured.
    void dump_once();

private:
    void complete(Request& request, Code code, const Error& error);
    void pop(Stream& stream, Code code, const Error& error);
    void succeed(Stream& stream);
    void fail_head(Stream& stream, const Failure& failure);
    void purge(Stream& stream);
    void use_arrived(Stream& stream);
    bool survives(const Request& request) const;
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
    std::atomic<bool> dumped_{false};
    std::atomic<uint64_t> first_failed_{~uint64_t{0}};  // that the others may not have failed
};

}  // namespace tutti
