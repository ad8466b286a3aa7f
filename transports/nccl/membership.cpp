#include "transports/nccl/membership.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "cuda/stream_work.h"
#include "wait/pace.h"

namespace tutti::nccl {
namespace {

constexpr useconds_t poll_us = 50;
constexpr int64_t remote_grace_ns = 2'000'000'000;
constexpr int no_color = -1;  // NCCL_SPLIT_NOCOLOR
constexpr Status invalid_usage = 5;
constexpr const char* splitting = "splitting NCCL's communicator";

// Whether this thread has an open group: NCCL's groups are per thread.
thread_local bool gathering = false;
// Memberships to stop when the group closes: while it is open, NCCL would abort nothing.
thread_local std::vector<Membership*> to_stop;
// Memberships with calls in the open group: if the group fails, all of them are stopped.
thread_local std::vector<Membership*> in_group;

bool is_fine(Status status) {
    return status == success || status == in_progress;
}

bool all_begun(const AllBegun& asked, bool mine) {
    return asked ? asked(mine) : mine;
}

}  // namespace

Membership::Membership(const Library& library, device::Context context,
                       const DeviceGroupRequest& request, Stop stop)
    : library_(library),
      context_(std::move(context)),
      rank_(request.rank),
      size_(request.size),
      timeout_ms_(request.timeout_ms),
      capability_(request.capability),
      rings_(static_cast<std::size_t>(request.rings)),
      stop_(std::move(stop)) {
    comms_.reserve(rings_);
}

Membership::~Membership() {
    stop();
}

// ---- joining -----------------------------------------------------------------------------------

Result<std::shared_ptr<Membership>> Membership::join(const Library& library,
                                                     device::Context context,
                                                     const DeviceGroupRequest& request,
                                                     Deadline deadline) {
    std::shared_ptr<Membership> made(new Membership(library, std::move(context), request,
                                                    std::make_shared<std::atomic<bool>>(false)));
    TUTTI_TRY(made->connect(request, deadline));
    return made;
}

// One ring at a time: on every rank, an NCCL communicator is complete before the next one begins.
Result<> Membership::connect(const DeviceGroupRequest& request, Deadline deadline) {
    UniqueId id{};
    if (request.id.size() != rings_ * sizeof id.bytes)
        return fail(Code::system, "NCCL's identifiers have {} bytes instead of {}",
                    request.id.size(), rings_ * sizeof id.bytes)
            .advice("install the same version of tutti on every host");
    // No lock: no other thread has this object yet.
    const device::Context::Scope current(context_);
    Result<> joined;
    for (std::size_t ring = 0; ring < rings_; ++ring) {
        if (!joined) {
            // The other ranks are about to begin the next ring; this tells them of the failure
            // there.
            all_begun(request.all_begun, false);
            break;
        }
        std::memcpy(id.bytes, request.id.data() + ring * sizeof id.bytes, sizeof id.bytes);
        CommConfig config;
        if (request.shares) config.split_share = 1;
        Comm& comm = slot();
        Status status = library_.init_rank_config(&comm, size_, id, rank_, &config);
        if (comm) comms_.push_back(comm);
        if (!all_begun(request.all_begun, is_fine(status)) && is_fine(status))
            return fail(Code::system, "another rank could not join NCCL's communicator")
                .advice("read the errors of the other ranks");
        if (!is_fine(status)) return take(comm, status, "joining NCCL's communicator");
        if (comm) status = wait(comm, deadline);
        if (status == in_progress)
            joined = fail(Code::timeout, "timed out before all {} ranks joined NCCL's communicator",
                          size_)
                         .advice(
                             "look at the other ranks and at NCCL's log (NCCL_DEBUG=INFO); if NCCL "
                             "takes a wrong interface, set NCCL_SOCKET_IFNAME; if it is only slow, "
                             "raise TUTTI_TIMEOUT_MS");
        else
            joined = take(comm, status, "joining NCCL's communicator");
    }
    return joined;
}

// NCCL writes the communicator here, possibly after our deadline, so the slot lives as long as this
// object.
Comm& Membership::slot() {
    return slots_.emplace_back(nullptr);
}

// NCCL builds the part from its parent's state, so this first checks that the parent is complete.
Result<std::shared_ptr<Membership>> Membership::split(const DeviceGroupPart& part,
                                                      Deadline deadline) {
    DeviceGroupRequest request;
    request.rank = part.rank;
    request.size = part.size;
    request.rings = static_cast<int32_t>(rings_);
    request.timeout_ms = timeout_ms_;
    request.capability = capability_;
    std::shared_ptr<Membership> made(new Membership(library_, context_, request, stop_));
    const device::Context::Scope current(context_);
    Result<> joined;
    for (std::size_t ring = 0; ring < rings_; ++ring) {
        if (!joined) {
            all_begun(part.all_begun, false);  // as in connect()
            break;
        }
        std::unique_lock lock(mutex_);
        Comm const parent = gone() ? nullptr : comms_[ring];
        CommConfig config;
        config.split_share = 1;  // for parts of this part; the parent's configuration decides
                                 // whether it shares resources
        Comm& comm = slot();
        const int color = part.color < 0 ? no_color : part.color;
        Status status =
            parent ? library_.split(parent, color, part.rank, &comm, &config) : invalid_usage;
        lock.unlock();
        const bool all = all_begun(part.all_begun, is_fine(status));
        lock.lock();
        if (!parent) return tl::unexpected(stopped_error());
        if (!is_fine(status)) return tl::unexpected(take(parent, status, splitting).error());
        if (!all) {
            if (comm) made->comms_.push_back(comm);
            return fail(Code::system, "another rank could not split NCCL's communicator")
                .advice("read the errors of the other ranks");
        }
        if (gone()) {
            joined = tl::unexpected(stopped_error());
            continue;
        }
        status = wait(parent, deadline);
        if (comm) made->comms_.push_back(comm);
        if (comm && status == success) status = wait(comm, deadline);
        joined = take(parent, status, splitting);
    }
    TUTTI_TRY(joined);
    if (part.color >= 0) return made;
    made->left_ = true;
    return nullptr;
}

// ---- calls -------------------------------------------------------------------------------------

// Checks the deadline between queries only, because NCCL's calls do not block.
Status Membership::wait(Comm comm, Deadline deadline) const {
    Pace pace(deadline, {.sleep_us = poll_us});
    for (;;) {
        Status status = in_progress;
        const Status asked = library_.async_error(comm, &status);
        if (asked != success) return asked;
        if (status != in_progress || *stop_ || !pace.pause()) return status;
    }
}

// Ends only when give_up() says so: the caller's deadline began when the operation was called.
Result<> Membership::conclude(std::unique_lock<std::mutex>& lock, std::size_t ring, Status status,
                              const DeviceOperation::GiveUp& give_up) {
    if (gathering && is_fine(status)) {
        in_group.push_back(this);
        return {};
    }
    Pace pace(Deadline(), {.sleep_us = poll_us});
    for (bool gives_up = false; status == in_progress && !gives_up;) {
        const Status asked = library_.async_error(comms_[ring], &status);
        if (asked != success) status = asked;
        if (status != in_progress) break;
        lock.unlock();
        gives_up = give_up();
        pace.pause();
        lock.lock();
        if (gone()) return tl::unexpected(stopped_error());
    }
    if (status == remote_error) {
        lock.unlock();
        // A peer is gone: waits a while for the control tree to name it.
        Pace news(Deadline::after_ms(remote_grace_ns / 1'000'000), {.sleep_us = poll_us});
        while (!give_up() && news.pause()) {
        }
        lock.lock();
        if (gone()) return tl::unexpected(stopped_error());
    }
    return take(comms_[ring], status, "starting a collective");
}

bool Membership::gathers_launches() {
    return gathering;
}

Result<> Membership::wait_accepted(std::size_t ring, const DeviceOperation::GiveUp& give_up) {
    std::unique_lock lock(mutex_);
    if (gone()) return tl::unexpected(stopped_error());
    return conclude(lock, ring, in_progress, give_up);
}

Result<> Membership::take(Comm comm, Status status, const char* doing) const {
    if (status == success) [[likely]]
        return {};
    if (*stop_) return tl::unexpected(stopped_error());
    if (status == in_progress)
        return fail(Code::timeout, "{}: NCCL did not finish within {} ms", doing, timeout_ms_);
    return tl::unexpected(nccl_error(library_, comm, status, doing));
}

Error Membership::stopped_error() const {
    return {Code::aborted, nobody, 0, "NCCL's communicator was aborted"};
}

Result<> Membership::health() {
    if (*stop_) return tl::unexpected(stopped_error());
    // If another thread holds the lock, it is querying NCCL, and finds the error itself.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    for (Comm comm : comms_) {
        Status status = success;
        if (const Status asked = library_.async_error(comm, &status); asked != success)
            status = asked;
        if (is_fine(status)) continue;
        if (status == remote_error) {
            if (remote_ns_ == 0) remote_ns_ = now_ns();
            if (now_ns() - remote_ns_ < remote_grace_ns) continue;
        }
        return take(comm, status, "a collective on the device");
    }
    return {};
}

// ---- leaving -----------------------------------------------------------------------------------

void Membership::stop() {
    if (gathering) return to_stop.push_back(this);
    std::vector<Comm> all;
    {
        // Threads that hold the lock while they wait for NCCL see the flag and release the lock.
        if (!left_) *stop_ = true;
        const std::lock_guard lock(mutex_);
        all.swap(comms_);
    }
    if (all.empty()) return;
    // Not under the lock: abort returns only when the device has finished.
    const device::Context::Scope current(context_);
    Status worst = library_.group_start();
    for (Comm comm : all)
        if (const Status status = library_.abort(comm); !is_fine(status)) worst = status;
    if (const Status ended = library_.group_end(); !is_fine(ended)) worst = ended;
    if (!is_fine(worst))
        log::warn(fail(Code::system, "aborting NCCL's communicators failed: {}",
                       library_.error_string(worst))
                      .advice("set NCCL_DEBUG=WARN and read NCCL's log; end this process if the "
                              "device stays busy")
                      .on(rank_));
}

void Membership::wait_to_let_go(const device::DeviceEvent& done) {
    if (!hangs_ && !device::wait_a_while(done)) hangs_ = true;
}

Status Membership::finish_all(Deadline deadline) {
    for (Comm comm : comms_) {
        Status status = library_.finalize(comm);
        if (is_fine(status)) status = wait(comm, deadline);
        if (status != success) return status;
    }
    return success;
}

void Membership::leave(Deadline deadline) {
    if (*stop_) return stop();
    const device::Context::Scope current(context_);
    std::vector<Comm> finished;
    {
        const std::lock_guard lock(mutex_);
        left_ = finish_all(deadline) == success;
        if (left_) finished.swap(comms_);
    }
    // Not under the lock, because destroy may wait.
    for (Comm comm : finished) library_.destroy(comm);
    if (!left_) stop();
}

// ---- several ranks' launches -------------------------------------------------------------------

Result<> gather_launches(const Library& library) {
    if (const Status status = library.group_start(); status != success)
        return tl::unexpected(nccl_error(library, nullptr, status, "opening a group"));
    gathering = true;
    return {};
}

Result<> launch_gathered(const Library& library) {
    gathering = false;
    const Status status = library.group_end();
    // Any launch of a failed group may be on the device, so all its members are stopped.
    if (!is_fine(status)) to_stop.insert(to_stop.end(), in_group.begin(), in_group.end());
    in_group.clear();
    for (Membership* membership : std::exchange(to_stop, {})) membership->stop();
    if (!is_fine(status))
        return tl::unexpected(nccl_error(library, nullptr, status, "launching a group"));
    return {};
}

}  // namespace tutti::nccl
