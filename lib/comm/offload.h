// The only interface from a communicator to an accelerator, for calls on memory that host
// operations cannot access. The room gpu implements it; a build without gpu has an implementation
// that takes no call (no_offload.cpp). No other file of this room, or of a room below it, knows of
// accelerators.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "p2p/transfer.h"
#include "plan/plan.h"
#include "run/request.h"

namespace tutti {

struct Core;
class Issuer;
class ProgressEngine;

/// One collective call, with the buffers of this run.
struct OffloadCall {
    const Call& call;
    const void* in = nullptr;
    void* out = nullptr;
    Plan* plan = nullptr;  // the caller's, where it has one
    int stream = -1;       // < 0: round robin
    int64_t timeout_ms = -1;
    void* queue = nullptr;  // the accelerator's; nullptr: the communicator's
    // The accelerator of each buffer, set by takes(); < 0: host memory.
    int32_t in_on = -1, out_on = -1;
};

/// A send or a receive.
struct OffloadMessage {
    bool sends = false;
    Rank peer = nobody;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    int32_t tag = 0;
    Dtype dtype = Dtype::uint8;
    Received* into = nullptr;
};

/// One rank's share of a split.
struct OffloadSplit {
    int32_t color = 0;  // < 0: the rank joins no part
    Rank rank = 0, size = 1;
};

/// A part's ranks, before it is known whether all of them could be split.
class OffloadShare {
public:
    virtual ~OffloadShare() = default;
};

/// For the issuing thread only, except owns() and may_wait().
class Offload {
public:
    virtual ~Offload() = default;

    // Queries from the host's path.
    /// True: Offload runs the call. Fills in which accelerator has each buffer, and asks the driver
    /// once for each. A failure of an earlier call that no call has returned yet is returned first.
    virtual Result<bool> takes(OffloadCall& call) = 0;
    /// Looks for a driver where none was known. True: there is one now, ask takes() again.
    virtual bool appeared() = 0;
    /// Binds a call that was checked and whose path is not the host's.
    virtual Result<std::unique_ptr<Plan>> bind(const Call& call, uint32_t stream,
                                               Deadline deadline) = 0;
    /// invalid while this thread gathers launches of that stream: the call would wait for itself.
    virtual Result<> may_block(const Call& call, uint32_t stream) const = 0;
    /// The same for a wait for that request.
    virtual Result<> may_wait(const Request& request) const = 0;
    /// The same for waiting until all ranks have come back from a mismatch.
    virtual Result<> may_wait_for_all() const = 0;

    // The calls.
    /// Returns when the operation is on its queue; the next call reports a later failure.
    virtual Result<> run(const OffloadCall& call) = 0;
    virtual Result<std::unique_ptr<Request>> start(const OffloadCall& call) = 0;
    /// The same for messages, which are launched together.
    virtual Result<> run(const std::vector<OffloadMessage>& messages) = 0;
    virtual Result<std::unique_ptr<Request>> start(const std::vector<OffloadMessage>& messages,
                                                   int64_t timeout_ms, void* queue) = 0;
    /// Waits for every operation started without a request; returns the first failure.
    virtual Result<> sync(int64_t timeout_ms) = 0;

    // Memory and queues.
    /// True if the memory is an accelerator's; an error if its driver has failed.
    virtual Result<bool> owns(const void* memory) const = 0;
    /// Joins the other ranks on that accelerator now instead of with the first call. Collective.
    virtual Result<> use(int ordinal) = 0;
    /// The queue of calls that name none; nullptr: the default one.
    virtual Result<> set_queue(void* queue) = 0;
    /// Work put on the communicator's queue from now on waits for the work that is on `before` now.
    virtual Result<> hold_own_queue(void* before) = 0;
    /// Work put on `after` from now on waits for the work that is on the communicator's queue now.
    virtual Result<> hold_queue(void* after) = 0;
    /// Memory that the ranks map into each other's. Collective.
    virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
    virtual Result<> add_memory(std::byte* data, std::size_t bytes) = 0;
    /// False: the communicator knows no memory that begins there.
    virtual Result<bool> remove_memory(std::byte* data, bool handed_out) = 0;

    // Parts of a communicator.
    /// True if a part that is split off shares this communicator's resources.
    virtual bool splits() const = 0;
    /// Called by every rank of the communicator; returns nullptr on a rank that joins no part.
    virtual std::unique_ptr<OffloadShare> split(const OffloadSplit& part) = 0;
    /// Called by every rank of the part, whose communicator this is.
    virtual Result<> adopt(std::unique_ptr<OffloadShare> share) = 0;

    // The end.
    /// Waits for operations started without a request, and drops gathered launches.
    virtual void finish(int64_t timeout_ms) = 0;
    /// Releases all resources.
    virtual void leave() = 0;
};

/// The launches that the calling thread gathers, of all its communicators.
class LaunchBatch {
public:
    virtual ~LaunchBatch() = default;
    virtual Result<> open() = 0;
    /// Launches everything gathered; returns the first failure.
    virtual Result<> close() = 0;
    virtual bool gathering() const = 0;
    /// Runs `work` after a gathered launch on which it depends.
    virtual void after_close(std::function<void()> work) = 0;
};

/// The communicator's parts that an implementation calls.
struct OffloadHost {
    Core& core;
    Issuer& issuer;
    ProgressEngine& progress;
};

/// Returns an error for settings that this build or machine cannot fulfil; called before the rank
/// joins a job.
Result<> check_offload(const Config& config);
/// The implementation that was built in.
std::unique_ptr<Offload> make_offload(const OffloadHost& host);
LaunchBatch& launch_batch();

}  // namespace tutti
