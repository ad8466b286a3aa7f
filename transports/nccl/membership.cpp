#include "transports/nccl/membership.h"

#include <unistd.h>

#include <cstring>

#include "base/log.h"

namespace tutti::nccl {
namespace {

constexpr useconds_t poll_us = 50;
constexpr int64_t remote_grace_ns = 2'000'000'000;

const Operation::GiveUp never = [] { return false; };

}  // namespace

Membership::Membership(const Library& library, device::Context context,
                       const DeviceGroupRequest& request)
    : library_(library),
      context_(std::move(context)),
      rank_(request.rank),
      size_(request.size),
      timeout_ms_(request.timeout_ms) {}

Membership::~Membership() {
    stop();
}

Result<std::shared_ptr<Membership>> Membership::join(const Library& library,
                                                     device::Context context,
                                                     const DeviceGroupRequest& request,
                                                     Deadline deadline) {
    std::shared_ptr<Membership> made(new Membership(library, std::move(context), request));
    TUTTI_TRY(made->connect(request, deadline));
    return made;
}

Result<> Membership::connect(const DeviceGroupRequest& request, Deadline deadline) {
    UniqueId id{};
    if (request.id.size() != sizeof id.bytes)
        return fail(Code::system, "rank {}: NCCL's identifier has {} bytes, {} are needed", rank_,
                    request.id.size(), sizeof id.bytes);
    std::memcpy(id.bytes, request.id.data(), sizeof id.bytes);
    const device::Context::Scope current(context_);
    const std::lock_guard lock(mutex_);
    CommConfig config;
    Status status = library_.init_rank_config(&comm_, size_, id, rank_, &config);
    if (status == success || status == in_progress) status = settle(deadline, never);
    if (status == in_progress)
        return fail(Code::timeout, "rank {}: not all {} ranks joined NCCL's communicator in time",
                    rank_, size_);
    return take(status, "joining NCCL's communicator");
}

// The deadline is looked at between queries only: NCCL never blocks us.
Status Membership::settle(Deadline deadline, const Operation::GiveUp& give_up) {
    for (;;) {
        Status status = in_progress;
        const Status asked = library_.async_error(comm_, &status);
        if (asked != success) return asked;
        if (status != in_progress || stop_ || deadline.passed() || give_up()) return status;
        ::usleep(poll_us);
    }
}

Result<> Membership::take(Status status, const char* doing) {
    if (status == success) [[likely]]
        return {};
    if (stop_) return tl::unexpected(over());
    if (status == in_progress)
        return fail(Code::timeout, "{}: NCCL is not done with it after {} ms", doing, timeout_ms_);
    return tl::unexpected(nccl_error(library_, comm_, status, doing));
}

Error Membership::over() const {
    return {Code::aborted, nobody, 0, "NCCL's communicator was aborted"};
}

Result<> Membership::health() {
    if (stop_) return tl::unexpected(over());
    // Whoever is inside will notice by itself.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || !comm_) return {};
    Status status = success;
    if (const Status asked = library_.async_error(comm_, &status); asked != success) status = asked;
    if (status == success || status == in_progress) return {};
    if (status == remote_error) {
        if (remote_ns_ == 0) remote_ns_ = now_ns();
        if (now_ns() - remote_ns_ < remote_grace_ns) return {};
    }
    return take(status, "a collective on the device");
}

void Membership::stop() {
    stop_ = true;
    Comm comm = nullptr;
    {
        const std::lock_guard lock(mutex_);
        comm = std::exchange(comm_, nullptr);
    }
    if (!comm) return;
    // Not under the lock: it returns when the device has let go.
    const device::Context::Scope current(context_);
    Status status = library_.group_start();
    status = library_.abort(comm);
    const Status ended = library_.group_end();
    if (status != success && status != in_progress) status = ended;
    if (status != success && status != in_progress)
        log::warn("rank {}: aborting NCCL's communicator: {}", rank_,
                  library_.error_string(status));
}

void Membership::leave(Deadline deadline) {
    if (stop_) return stop();
    {
        const std::lock_guard lock(mutex_);
        if (!comm_) return;
        const device::Context::Scope current(context_);
        Status status = library_.finalize(comm_);
        if (status == success || status == in_progress) status = settle(deadline, never);
        if (status == success) {
            library_.destroy(std::exchange(comm_, nullptr));
            stop_ = true;
            return;
        }
    }
    stop();
}

}  // namespace tutti::nccl
