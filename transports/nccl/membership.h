// NCCL's communicators of one group of ranks, one for each ring: made without blocking and in the
// same order everywhere, entered by one thread at a time, left in order or by force.
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
    /// Collective over this one's ranks, like join. nullptr for a negative colour. Its
    /// communicators share the resources of these, and the fate: what stops one stops both.
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

    /// Enqueues what `calls(comm)` asks for, as one group, and waits until NCCL has taken it, which
    /// takes long for the first only and ends when give_up() says so. That is asked without a lock
    /// held: what it finds may stop() this membership. The context is current. Fails at once after
    /// stop(); what fails on the way is for the caller to stop(). While this thread gathers the
    /// launches of several ranks, wait_accepted() waits instead.
    template <typename Calls>
    Result<> submit(std::size_t ring, Calls&& calls, const DeviceOperation::GiveUp& give_up) {
        std::unique_lock lock(mutex_);
        if (gone()) return tl::unexpected(stopped_error());
        Status status = library_.group_start();
        if (status == success) {
            status = calls(comms_[ring]);
            // Whatever became of the calls, the group is closed: else the next would be in it.
            const Status ended = library_.group_end();
            if (status == success || status == in_progress) status = ended;
        }
        return conclude(lock, ring, status, give_up);
    }
    /// This thread's launches are being gathered.
    static bool gathers_launches();
    /// Waits until NCCL has taken what was submitted while launches were gathered.
    Result<> wait_accepted(std::size_t ring, const DeviceOperation::GiveUp& give_up);
    /// Without a group, for what NCCL answers at once or soon.
    template <typename Calls>
    Result<> ask(std::size_t ring, const char* doing, Calls&& calls) {
        const std::lock_guard lock(mutex_);
        if (gone()) return tl::unexpected(stopped_error());
        Status status = calls(comms_[ring]);
        if (status == in_progress) status = wait(comms_[ring], operation_deadline());
        return take(comms_[ring], status, doing);
    }

    /// The same, where NCCL writes a handle when it is done: where that is, lives as long as this.
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
    /// By force: nothing of these communicators is begun afterwards, and what runs on the device
    /// ends soon (wait_to_let_go); all are aborted in one group. Any thread; the first one does it,
    /// later ones find it done. Where this thread gathers launches, when it has launched them.
    void stop();
    bool stopped() const { return *stop_; }
    /// After stop(), for a while, once: NCCL ends its kernels by a word to them, and waits for
    /// their end only in the last of its communicators in the process that is aborted.
    void wait_to_let_go(const device::DeviceEvent& done);
    /// In order; by force if that takes too long or has been done already.
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
    const Stop stop_;  // ends waits of whoever is inside; shared with what was split off
    std::atomic<bool> left_{false};   // in order: no reason to stop the others
    std::atomic<bool> hangs_{false};  // the device did not let go in that time
    std::mutex mutex_;                // entering NCCL with a communicator
    std::vector<Comm> comms_;         // by ring; fewer than rings_: they are over
    int64_t remote_ns_ = 0;           // when a peer's failure was first seen
    std::deque<Comm> slots_;
    std::deque<void*> handles_;
};

/// DeviceGroupBatch of this thread between these are taken by NCCL together.
Result<> gather_launches(const Library& library);
Result<> launch_gathered(const Library& library);

}  // namespace tutti::nccl
