// NCCL's communicators of one group of ranks, one for each ring. They are made without blocking and
// in the same order on every rank. One thread at a time uses them. They are finalised in order, or
// aborted.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "cuda/handles.h"
#include "cuda/library.h"
#include "transports/nccl/library.h"
#include "transports/nccl/types.h"

namespace tutti::nccl {

class Membership {
public:
    /// Blocks until every rank has joined or the deadline has passed.
    static Result<std::shared_ptr<Membership>> join(const Library& library, device::Context context,
                                                    const DeviceGroupRequest& request,
                                                    Deadline deadline);
    /// Collective over this membership's ranks, like join. nullptr for a negative colour. The
    /// part's communicators share the resources of these; stopping either stops both.
    Result<std::shared_ptr<Membership>> split(const DeviceGroupPart& part, Deadline deadline);
    ~Membership();
    Membership(const Membership&) = delete;

    const Library& library() const { return library_; }
    const device::Context& context() const { return context_; }
    Ability ability() const { return {library_.version, capability_}; }
    Rank rank() const { return rank_; }
    Rank size() const { return size_; }
    /// The ring of one of the program's streams: the same on every rank.
    std::size_t ring_of(uint32_t stream) const { return stream % rings_; }
    std::size_t rings() const { return rings_; }

    /// Enqueues the NCCL calls of `calls(comm)` as one group, and waits until NCCL has accepted
    /// them, which takes long only the first time, or until give_up() returns true. The wait calls
    /// give_up() without the lock, because it may stop() this membership. The context must be
    /// current. Fails at once after stop(). If it fails later, the caller must stop() the
    /// membership. While this thread gathers the launches of several ranks, wait_accepted() does
    /// the waiting.
    template <typename Calls>
    Result<> submit(std::size_t ring, Calls&& calls, const DeviceOperation::GiveUp& give_up) {
        std::unique_lock lock(mutex_);
        if (gone()) return tl::unexpected(stopped_error());
        Status status = library_.group_start();
        if (status == success) {
            status = calls(comms_[ring]);
            // Closes the group even if a call failed; otherwise later calls would be part of it.
            const Status ended = library_.group_end();
            if (status == success || status == in_progress) status = ended;
        }
        return conclude(lock, ring, status, give_up);
    }
    /// Whether this thread is gathering launches.
    static bool gathers_launches();
    /// Waits until NCCL has accepted the calls that were submitted while launches were gathered.
    Result<> wait_accepted(std::size_t ring, const DeviceOperation::GiveUp& give_up);
    /// Without a group, for calls that NCCL answers at once or soon.
    template <typename Calls>
    Result<> ask(std::size_t ring, const char* doing, Calls&& calls) {
        const std::lock_guard lock(mutex_);
        if (gone()) return tl::unexpected(stopped_error());
        Status status = calls(comms_[ring]);
        if (status == in_progress) status = wait(comms_[ring], operation_deadline());
        return take(comms_[ring], status, doing);
    }

    /// The same, for calls whose result is a handle that NCCL may write later; its memory lives as
    /// long as this object.
    template <typename Calls>
    Result<void*> ask_handle(std::size_t ring, const char* doing, Calls&& calls) {
        void** handle = nullptr;
        {
            const std::lock_guard lock(mutex_);
            handle = &handles_.emplace_back(nullptr);
        }
        TUTTI_TRY(ask(ring, doing, [&](Comm comm) { return calls(comm, handle); }));
        return *handle;
    }

    /// ok, or an error that NCCL's own threads have found. A peer's failure is reported only after
    /// a grace period, because the control tree can name the peer.
    Result<> health();
    /// Aborts all communicators in one group: no new operation begins on them, and running
    /// operations end soon on the device (wait_to_let_go). Any thread; the first one aborts, later
    /// ones return. If this thread gathers launches, the abort happens after they are launched.
    void stop();
    bool stopped() const { return *stop_; }
    /// After stop(), waits a while, once, for the device to end the operation. An abort tells
    /// NCCL's kernels to end, but waits for their end only in the last of its communicators in the
    /// process.
    void wait_to_let_go(const device::DeviceEvent& done);
    /// Finalises the communicators in order; aborts them if that takes too long or stop() was
    /// called.
    void leave(Deadline deadline);

private:
    using Stop = std::shared_ptr<std::atomic<bool>>;
    Membership(const Library& library, device::Context context, const DeviceGroupRequest& request,
               Stop stop);
    Result<> connect(const DeviceGroupRequest& request, Deadline deadline);
    Status wait(Comm comm, Deadline deadline) const;
    Result<> conclude(std::unique_lock<std::mutex>& lock, std::size_t ring, Status status,
                      const DeviceOperation::GiveUp& give_up);
    Result<> take(Comm comm, Status status, const char* doing) const;
    Status finish_all(Deadline deadline);
    Comm& slot();
    Deadline operation_deadline() const { return Deadline::after_ms(timeout_ms_); }
    bool gone() const { return comms_.size() < rings_ || *stop_; }
    Error stopped_error() const;

    const Library& library_;
    const device::Context context_;
    const Rank rank_, size_;
    const int64_t timeout_ms_;
    const int capability_;
    const std::size_t rings_;
    const Stop stop_;  // ends the waits of all threads inside; shared with split memberships
    std::atomic<bool> left_{false};   // finalised in order: no reason to stop split memberships
    std::atomic<bool> hangs_{false};  // the device did not end its work in that time
    std::mutex mutex_;                // held by the thread that uses a communicator
    std::vector<Comm> comms_;         // by ring; fewer than rings_: stopped or left
    int64_t remote_ns_ = 0;           // when a peer's failure was first seen
    std::deque<Comm> slots_;
    std::deque<void*> handles_;
};

/// NCCL accepts the DeviceGroupBatch calls of this thread between these two calls together.
Result<> gather_launches(const Library& library);
Result<> launch_gathered(const Library& library);

}  // namespace tutti::nccl
