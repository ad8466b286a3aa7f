#include "trainer/parallel/pool.h"

#include <algorithm>
#include <exception>

#include "trainer/base/boundary.h"

using tutti::trainer::Error;
using tutti::trainer::fail;
using tutti::trainer::from_call;
using tutti::trainer::Result;
using tutti::trainer::parallel::HostComm;

namespace {

/// The error of replicas that waited for a failed replica.
Error released_by(Error cause) {
    cause.message = fmt::format("stopped, because {}", cause.message);
    return cause;
}

}  // namespace

tutti_pool::tutti_pool(int devices) {
    threads_.reserve(static_cast<std::size_t>(devices));
    try {
        for (int d = 0; d < devices; ++d) threads_.emplace_back([this, d] { work(d); });
    } catch (...) {
        stop();  // the system has no more threads: end the threads created so far
        throw;
    }
}

tutti_pool::~tutti_pool() {
    stop();
}

void tutti_pool::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void tutti_pool::attach(std::shared_ptr<DeviceExchange> exchange) {
    const std::lock_guard lock(mutex_);
    exchanges_.push_back(exchange);
    if (!call_) return;
    // The exchange has no pushes yet, so that no callback is due.
    exchange->begin(call_->replicas, call_->opts.sync != 0);
    for (const tutti_replica& replica : replicas_)
        if (replica.left) exchange->leave(replica.device);
    if (first_) exchange->fail(released_by(*first_));
}

void tutti_pool::detach(const DeviceExchange& exchange) {
    const std::lock_guard lock(mutex_);
    std::erase_if(exchanges_, [&](const auto& known) { return known.get() == &exchange; });
}

Result<std::shared_ptr<HostComm>> HostComm::of(tutti_comm* program) {
    tutti_comm* own = nullptr;
    TRAINER_TRY(from_call(tutti_comm_dup(program, &own), "copy of the communicator"));
    return std::make_shared<HostComm>(program, own);
}

Result<std::shared_ptr<HostComm>> tutti_pool::hosts_of(tutti_comm* comm) {
    for (auto& known : hosts())
        if (known->is_of(comm)) return std::move(known);
    TRAINER_ASSIGN(std::shared_ptr<HostComm> made, HostComm::of(comm));
    const std::lock_guard lock(mutex_);
    hosts_.push_back(made);
    return made;
}

std::vector<std::shared_ptr<HostComm>> tutti_pool::hosts() {
    const std::lock_guard lock(mutex_);
    std::erase_if(hosts_, [](const auto& hosts) { return hosts.expired(); });
    std::vector<std::shared_ptr<HostComm>> known;
    for (const auto& weak : hosts_)
        if (auto hosts = weak.lock()) known.push_back(std::move(hosts));
    return known;
}

Result<tutti_pool::Outputs> tutti_pool::apply(const ApplyCall& call) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy)
        return fail(TUTTI_ERR_INVALID, "parallel_apply: the pool is in use by another call")
            .advice("use another pool (tutti_pool_create) for each call at the same time");
    begin(call);
    if (call.opts.sync)
        run_at_once();
    else
        run_one_after_another(call);
    end();
    if (first_) return tl::unexpected<Error>(*first_);
    Outputs outputs;
    for (tutti_replica& replica : replicas_) outputs.push_back(std::move(replica.output));
    return outputs;
}

void tutti_pool::begin(const ApplyCall& call) {
    const std::lock_guard lock(mutex_);
    replicas_.clear();
    for (int d = 0; d < call.replicas; ++d) {
        const auto at = static_cast<std::size_t>(d);
        replicas_.push_back({.device = d,
                             .count = call.replicas,
                             .flags = call.opts,
                             .input = call.inputs.empty() ? nullptr : call.inputs[at]});
    }
    first_.reset();
    adds_hosts_ = false;
    for (const auto& exchange : exchanges_) exchange->begin(call.replicas, call.opts.sync != 0);
    call_ = &call;
}

void tutti_pool::end() {
    const std::lock_guard lock(mutex_);
    call_ = nullptr;
    for (const auto& exchange : exchanges_) exchange->end();
}

void tutti_pool::run_at_once() {
    std::unique_lock lock(mutex_);
    ++generation_;
    running_ = awake_ = static_cast<int>(replicas_.size());
    wake_.notify_all();
    // Needs no deadline: a replica that fails or returns releases the replicas that wait for it.
    done_.wait(lock, [&] { return running_ == 0; });
    // A thread without a replica may wake only after this call; it must not take the next call's
    // work.
    awake_ = 0;
}

void tutti_pool::run_one_after_another(const ApplyCall& call) {
    for (tutti_replica& replica : replicas_) {
        run_replica(replica, call);
        if (first_) return;
    }
}

void tutti_pool::work(int device) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
        if (device >= awake_) continue;
        lock.unlock();
        run_replica(replicas_[static_cast<std::size_t>(device)], *call_);
        lock.lock();
        if (--running_ == 0) done_.notify_all();
    }
}

void tutti_pool::run_replica(tutti_replica& replica, const ApplyCall& call) {
    tutti_status status = TUTTI_OK;
    // Clears this thread's last error, so that a text found afterwards is the replica's.
    tutti::trainer::last_error() = {TUTTI_OK, -1, -1, {}};
    try {
        status = call.function(&replica, call.user);
        if (status != TUTTI_OK && replica.error.empty()) replica.error = tutti_trainer_last_error();
        if (status != TUTTI_OK && replica.error.empty())
            replica.error = tutti_status_string(status);
    } catch (const std::exception& error) {
        status = TUTTI_ERR_SYSTEM;
        replica.error = error.what();
    } catch (...) {
        status = TUTTI_ERR_SYSTEM;
        replica.error = "an exception of unknown type";
    }
    const Error& last = tutti::trainer::last_error();
    if (status != TUTTI_OK)
        note_failure({status, last.rank, replica.device,
                      fmt::format("device {}: {}", replica.device, replica.error),
                      last.status == status && last.agreed,
                      fmt::format("look at why the function of device {}'s replica failed",
                                  replica.device)});
    for (const auto& exchange : mark_left(replica)) exchange->leave(replica.device);
}

// Returns the exchanges that exist now. attach tells later exchanges which replicas have left.
tutti_pool::Exchanges tutti_pool::mark_left(tutti_replica& replica) {
    const std::lock_guard lock(mutex_);
    replica.left = true;
    return exchanges_;
}

/// Stores the cause before any replica is released, so that their errors do not replace it.
void tutti_pool::note_failure(const Error& cause) {
    Exchanges exchanges;
    {
        const std::lock_guard lock(mutex_);
        if (!first_) first_ = cause;
        exchanges = exchanges_;
    }
    for (const auto& exchange : exchanges) exchange->fail(released_by(cause));
    if (!cause.agreed && (!call_->evaluates || adds_hosts_)) abort_hosts();
}

// Other hosts may wait in a sum that the failed replica of this host did not reach.
void tutti_pool::abort_hosts() {
    for (const auto& hosts : hosts()) hosts->abort();
}
