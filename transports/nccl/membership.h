// One NCCL communicator: made without blocking, entered by one thread at a time, left in order or
// by force.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "device/handles.h"
#include "transport/device_library.h"
#include "transports/nccl/library.h"

namespace tutti::nccl {

class Membership {
public:
    /// Blocks until every rank has joined or the deadline has passed.
    static Result<std::shared_ptr<Membership>> join(const Library& library, device::Context context,
                                                    const DeviceGroupRequest& request,
                                                    Deadline deadline);
    ~Membership();
    Membership(const Membership&) = delete;

    const Library& library() const { return library_; }
    const device::Context& context() const { return context_; }
    Rank rank() const { return rank_; }
    Rank size() const { return size_; }
    int64_t timeout_ms() const { return timeout_ms_; }

    /// Enqueues what `calls(comm)` asks for, as one group, and waits until NCCL has taken it, which
    /// takes long for the first only and ends when give_up() says so. The context is current. Fails
    /// at once after stop(); what fails on the way is for the caller to stop().
    template <typename Calls>
    Result<> submit(Calls&& calls, const Operation::GiveUp& give_up) {
        const std::lock_guard lock(mutex_);
        if (!comm_ || stop_) return tl::unexpected(over());
        Status status = library_.group_start();
        if (status == success) {
            status = calls(comm_);
            // Whatever became of the calls, the group is closed: else the next would be in it.
            const Status ended = library_.group_end();
            if (status == success || status == in_progress) status = ended;
        }
        if (status == in_progress) status = settle(Deadline::after_ms(timeout_ms_), give_up);
        return take(status, "starting a collective");
    }
    /// The same without a group, for what NCCL answers at once.
    template <typename Calls>
    Result<> ask(const char* doing, Calls&& calls) {
        const std::lock_guard lock(mutex_);
        if (!comm_ || stop_) return tl::unexpected(over());
        return take(calls(comm_), doing);
    }

    /// What NCCL's own threads have found wrong since. A peer's failure is reported after a while
    /// only: the control tree knows whose it is.
    Result<> health();
    /// By force: nothing of this communicator runs afterwards, on the device neither. Any thread;
    /// the first one does it, later ones find it done.
    void stop();
    bool stopped() const { return stop_; }
    /// In order; by force if that takes too long or has been done already.
    void leave(Deadline deadline);

private:
    Membership(const Library& library, device::Context context, const DeviceGroupRequest& request);
    Result<> connect(const DeviceGroupRequest& request, Deadline deadline);
    Status settle(Deadline deadline, const Operation::GiveUp& give_up);
    Result<> take(Status status, const char* doing);
    Error over() const;

    const Library& library_;
    const device::Context context_;
    const Rank rank_, size_;
    const int64_t timeout_ms_;
    std::atomic<bool> stop_{false};  // ends waits of whoever is inside
    std::mutex mutex_;               // entering NCCL with the communicator
    Comm comm_ = nullptr;
    int64_t remote_ns_ = 0;  // when a peer's failure was first seen
};

}  // namespace tutti::nccl
