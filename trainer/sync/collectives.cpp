#include "trainer/sync/collectives.h"

#include <algorithm>

namespace tutti::trainer {
namespace {

std::byte* block(void* data, std::size_t index, std::size_t bytes) {
    return static_cast<std::byte*>(data) + index * bytes;
}

}  // namespace

Collectives::Collectives(const Comm& comm, std::vector<Device*> devices, bool fixed_order)
    : comm_(comm),
      devices_(std::move(devices)),
      fixed_order_(fixed_order),
      staged_(std::ranges::any_of(devices_, [](const Device* d) { return !d->is_reachable(); })),
      apart_(std::ranges::any_of(
          devices_, [&](const Device* d) { return !d->reaches(*devices_.front()); })) {}

Result<> Collectives::prepare(Task& task) {
    if (task.whole || devices_.size() == 1) return {};
    if (task.kind == TUTTI_COLLECTIVE_REDUCE_SCATTER) {
        TRAINER_ASSIGN(task.scratch, DeviceAllocation::make(*devices_.front(), task.bytes()));
    }
    const bool sums_all =
        task.kind == TUTTI_COLLECTIVE_ALLREDUCE || task.kind == TUTTI_COLLECTIVE_REDUCE;
    const bool adds_apart = staged_ || (apart_ && fixed_order_);
    if (!adds_apart || !sums_all || task.op != TUTTI_SUM) return {};
    for (Device* device : devices_) {
        TRAINER_ASSIGN(DeviceAllocation peer, DeviceAllocation::make(*device, task.bytes()));
        task.staging.peers.push_back(std::move(peer));
        if (!fixed_order_) break;  // device 0 adds
    }
    return {};
}

tutti_call_opts Collectives::options(const Task& task) const {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = task.stream;
    opts.name = task.operation;
    return opts;
}

Result<void*> Collectives::stage_input(Task& task, std::size_t d) {
    if (!staged_) return task.in[d];
    task.staging.in.resize(devices_.size() * task.bytes());
    std::byte* const at = block(task.staging.in.data(), d, task.bytes());
    TRAINER_TRY(devices_[d]->copy(at, task.in[d], task.bytes()));
    return at;
}

void* Collectives::stage_output(Task& task, void* to, std::size_t bytes) {
    if (!staged_) return to;
    task.staging.out.resize(bytes);
    task.staging.to = to;
    return task.staging.out.data();
}

Result<> Collectives::copy_staged_output(Task& task) {
    void* const to = std::exchange(task.staging.to, nullptr);
    if (!to) return {};
    return devices_.front()->copy(to, task.staging.out.data(), task.staging.out.size());
}

// From device 0's memory.
Result<> Collectives::copy_to_device(Task& task, std::size_t to, const void* from,
                                     std::size_t bytes) {
    return devices_[to]->copy_from(*devices_.front(), task.out[to], from, bytes);
}

Result<> Collectives::add(Task& task, std::size_t to, std::size_t from) {
    void* more = task.out[from];
    if (apart_) {
        more = task.staging.peers[to].data();
        TRAINER_TRY(devices_[to]->copy_from(*devices_[from], more, task.out[from], task.bytes()));
    }
    return devices_[to]->axpby(task.count, task.dtype, 1, more, 1, task.out[to]);
}

Result<> Collectives::copy_input(Task& task, std::size_t d, void* to) {
    if (staged_) return devices_[d]->copy(to, task.in[d], task.bytes());
    return devices_.front()->copy_from(*devices_[d], to, task.in[d], task.bytes());
}

// (0 + 1) + (2 + 3) …: the additions depend only on the number of replicas, not on their hosts.
Result<> Collectives::add_in_pairs(Task& task) {
    for (std::size_t step = 1; step < devices_.size(); step *= 2)
        for (std::size_t d = 0; d + step < devices_.size(); d += 2 * step)
            TRAINER_TRY(add(task, d, d + step));
    return {};
}

Result<tutti_request*> Collectives::add_on_devices(Task& task) {
    for (std::size_t d = 0; d < devices_.size(); ++d)
        TRAINER_TRY(devices_[d]->copy(task.out[d], task.in[d], task.bytes()));
    tutti_call_opts opts = options(task);
    if (fixed_order_) {
        TRAINER_TRY(add_in_pairs(task));
        opts.algorithm = "recursive_doubling";
    } else {
        for (std::size_t d = 1; d < devices_.size(); ++d) TRAINER_TRY(add(task, 0, d));
    }
    if (is_single_rank()) return nullptr;
    void* const own = task.out.front();
    void* const sum = stage_output(task, own, task.bytes());
    TRAINER_TRY(devices_.front()->copy(sum, own, task.bytes()));
    tutti_request* request = nullptr;
    TRAINER_TRY(from_call(
        tutti_iallreduce(comm_.get(), sum, sum, task.count, task.dtype, task.op, &opts, &request),
        task.name));
    return request;
}

Result<tutti_request*> Collectives::reduce_all(Task& task, void* out) {
    const bool adds = task.dtype == TUTTI_FLOAT32 || task.dtype == TUTTI_FLOAT64;
    const bool may_add = adds && task.op == TUTTI_SUM && out == task.out.front();
    if (may_add && (fixed_order_ || (staged_ && !task.staging.peers.empty())))
        return add_on_devices(task);
    if (is_single_rank() && devices_.size() == 1) {
        TRAINER_TRY(devices_.front()->copy(out, task.in.front(), task.bytes()));
        return nullptr;
    }
    std::vector<void*> staged;
    for (std::size_t d = 0; staged_ && d < devices_.size(); ++d) {
        TRAINER_ASSIGN(void* const staged_input, stage_input(task, d));
        staged.push_back(staged_input);
    }
    const std::vector<void*>& in = staged_ ? staged : task.in;
    void* const result = stage_output(task, out, task.bytes());
    const tutti_call_opts opts = options(task);
    tutti_request* request = nullptr;
    const tutti_status status =
        in.size() == 1
            ? tutti_iallreduce(comm_.get(), in[0], result, task.count, task.dtype, task.op, &opts,
                               &request)
            : tutti_iallreduce_multi(comm_.get(), in.data(), static_cast<int>(in.size()), result,
                                     task.count, task.dtype, task.op, &opts, &request);
    TRAINER_TRY(from_call(status, task.name));
    return request;
}

Result<tutti_request*> Collectives::broadcast(Task& task) {
    const auto devices = devices_.size();
    const auto root = static_cast<std::size_t>(task.root);
    void* const own = task.out.front();
    const bool here = root / devices == static_cast<std::size_t>(comm_.rank());
    if (here)
        TRAINER_TRY(devices_.front()->copy_from(*devices_[root % devices], own,
                                                task.in[root % devices], task.bytes()));
    if (is_single_rank()) return nullptr;
    void* const data = stage_output(task, own, task.bytes());
    if (here) {
        TRAINER_TRY(devices_.front()->copy(data, own, task.bytes()));
        task.staging.to = nullptr;  // the result is in place already
    }
    const tutti_call_opts opts = options(task);
    tutti_request* request = nullptr;
    TRAINER_TRY(from_call(tutti_ibroadcast(comm_.get(), data, task.count, task.dtype,
                                           static_cast<int>(root / devices), &opts, &request),
                          task.name));
    return request;
}

Result<tutti_request*> Collectives::reduce(Task& task) {
    if (devices_.size() > 1) return reduce_all(task, task.out.front());
    TRAINER_ASSIGN(void* const in, stage_input(task, 0));
    void* const out = stage_output(task, task.out.front(), task.bytes());
    if (comm_.rank() != task.root) task.staging.to = nullptr;  // this rank gets no result
    const tutti_call_opts opts = options(task);
    tutti_request* request = nullptr;
    TRAINER_TRY(from_call(tutti_ireduce(comm_.get(), in, out, task.count, task.dtype, task.op,
                                        task.root, &opts, &request),
                          task.name));
    return request;
}

Result<tutti_request*> Collectives::allgather(Task& task) {
    const auto devices = devices_.size();
    if (is_single_rank()) {
        for (std::size_t d = 0; d < devices; ++d)
            TRAINER_TRY(devices_.front()->copy_from(
                *devices_[d], block(task.out.front(), d, task.bytes()), task.in[d], task.bytes()));
        return nullptr;
    }
    const std::size_t replicas = devices * static_cast<std::size_t>(comm_.size());
    void* const all = stage_output(task, task.out.front(), task.bytes() * replicas);
    for (std::size_t d = 0; d < devices; ++d)
        TRAINER_TRY(copy_input(task, d, block(all, first_replica() + d, task.bytes())));
    const tutti_call_opts opts = options(task);
    tutti_request* request = nullptr;
    TRAINER_TRY(from_call(tutti_iallgather(comm_.get(), block(all, first_replica(), task.bytes()),
                                           all, task.count * devices, task.dtype, &opts, &request),
                          task.name));
    return request;
}

Result<tutti_request*> Collectives::reduce_scatter(Task& task) {
    if (devices_.size() > 1) return reduce_all(task, task.scratch.data());
    const auto ranks = static_cast<std::size_t>(comm_.size());
    TRAINER_ASSIGN(void* const in, stage_input(task, 0));
    const tutti_call_opts opts = options(task);
    tutti_request* request = nullptr;
    TRAINER_TRY(
        from_call(tutti_ireduce_scatter(comm_.get(), in,
                                        stage_output(task, task.out.front(), task.bytes() / ranks),
                                        task.count / ranks, task.dtype, task.op, &opts, &request),
                  task.name));
    return request;
}

Result<tutti_request*> Collectives::begin(Task& task) {
    ++issued_;
    task.staging.to = nullptr;  // of a call that failed
    if (task.whole) {
        TRAINER_ASSIGN(const uint64_t bytes, task.whole());
        task.whole_bytes += bytes;
        if (!is_single_rank()) bytes_ += bytes;
        return nullptr;
    }
    if (!is_single_rank()) bytes_ += task.bytes();
    if (task.widens) TRAINER_TRY(widen(task));
    switch (task.kind) {
        case TUTTI_COLLECTIVE_ALLREDUCE:
            return reduce_all(task, task.out.front());
        case TUTTI_COLLECTIVE_BROADCAST:
            return broadcast(task);
        case TUTTI_COLLECTIVE_REDUCE:
            return reduce(task);
        case TUTTI_COLLECTIVE_ALLGATHER:
            return allgather(task);
        case TUTTI_COLLECTIVE_REDUCE_SCATTER:
            return reduce_scatter(task);
    }
    return nullptr;
}

Result<> Collectives::copy_to_devices(Task& task, std::size_t bytes) {
    for (std::size_t d = 1; d < devices_.size(); ++d)
        TRAINER_TRY(copy_to_device(task, d, task.out.front(), bytes));
    return {};
}

Result<> Collectives::widen(Task& task) {
    for (std::size_t d = 0; d < task.narrow.size(); ++d)
        TRAINER_TRY(devices_[d]->convert(task.count, task.narrow_dtype, task.narrow[d], task.dtype,
                                         task.in[d]));
    return {};
}

Result<> Collectives::end(Task& task) {
    if (task.whole) return {};
    TRAINER_TRY(copy_staged_output(task));
    TRAINER_TRY(copy_results(task));
    for (std::size_t d = 0; d < task.narrow.size(); ++d)
        TRAINER_TRY(devices_[d]->convert(task.count, task.dtype, task.out[d], task.narrow_dtype,
                                         task.narrow[d]));
    return {};
}

Result<> Collectives::copy_results(Task& task) {
    const auto devices = devices_.size();
    const auto replicas = devices * static_cast<std::size_t>(comm_.size());
    switch (task.kind) {
        case TUTTI_COLLECTIVE_ALLREDUCE:
        case TUTTI_COLLECTIVE_BROADCAST:
            return copy_to_devices(task, task.bytes());
        case TUTTI_COLLECTIVE_ALLGATHER:
            return copy_to_devices(task, task.bytes() * replicas);
        case TUTTI_COLLECTIVE_REDUCE: {
            const auto root = static_cast<std::size_t>(task.root);
            if (root / devices != static_cast<std::size_t>(comm_.rank())) return {};
            return copy_to_device(task, root % devices, task.out.front(), task.bytes());
        }
        case TUTTI_COLLECTIVE_REDUCE_SCATTER: {
            if (devices == 1) return {};
            const std::size_t bytes = task.bytes() / replicas;
            for (std::size_t d = 0; d < devices; ++d)
                TRAINER_TRY(copy_to_device(
                    task, d, block(task.scratch.data(), first_replica() + d, bytes), bytes));
            return {};
        }
    }
    return {};
}

}  // namespace tutti::trainer
