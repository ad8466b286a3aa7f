#include "trainer/sync/collectives.h"

namespace tutti::trainer {
namespace {

Result<tutti_comm*> create_alone() {
    tutti_config* config = nullptr;
    TRAINER_TRY(from_call(tutti_config_create(&config), "settings"));
    tutti_comm* comm = nullptr;
    tutti_status status = tutti_config_set(config, "rank", "0");
    if (status == TUTTI_OK) status = tutti_config_set(config, "size", "1");
    if (status == TUTTI_OK) status = tutti_comm_create(config, &comm);
    tutti_config_destroy(config);
    TRAINER_TRY(from_call(status, "a communicator of this process alone"));
    return comm;
}

Result<tutti_comm*> duplicate(tutti_comm* comm) {
    tutti_comm* copy = nullptr;
    TRAINER_TRY(from_call(tutti_comm_dup(comm, &copy), "a copy of the communicator"));
    return copy;
}

std::byte* block(void* data, std::size_t index, std::size_t bytes) {
    return static_cast<std::byte*>(data) + index * bytes;
}

}  // namespace

Result<Comm> Comm::copy_of(tutti_comm* comm) {
    TRAINER_ASSIGN(tutti_comm* const own, comm ? duplicate(comm) : create_alone());
    return Comm(own);
}

Result<> Collectives::prepare(Task& task) {
    if (task.kind == TUTTI_COLLECTIVE_REDUCE_SCATTER && devices_.size() > 1) {
        TRAINER_ASSIGN(task.scratch, DeviceMemory::make(*devices_.front(), task.bytes()));
    }
    return {};
}

tutti_call_opts Collectives::options(const Task& task) const {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = task.stream;
    return opts;
}

// (0 + 1) + (2 + 3) …: the same additions for as many replicas, however they lie on hosts.
Result<> Collectives::add_in_pairs(Task& task) {
    for (std::size_t d = 0; d < devices_.size(); ++d)
        TRAINER_TRY(devices_[d]->copy(task.out[d], task.in[d], task.bytes()));
    for (std::size_t step = 1; step < devices_.size(); step *= 2)
        for (std::size_t d = 0; d + step < devices_.size(); d += 2 * step)
            TRAINER_TRY(
                devices_[d]->axpby(task.count, task.dtype, 1, task.out[d + step], 1, task.out[d]));
    return {};
}

Result<tutti_request*> Collectives::reduce_all(Task& task, void* out) {
    tutti_request* request = nullptr;
    tutti_call_opts opts = options(task);
    const bool adds = task.dtype == TUTTI_FLOAT32 || task.dtype == TUTTI_FLOAT64;
    if (fixed_order_ && adds && task.op == TUTTI_SUM && out == task.out.front()) {
        TRAINER_TRY(add_in_pairs(task));
        opts.algorithm = "recursive_doubling";
        if (!alone())
            TRAINER_TRY(from_call(tutti_iallreduce(comm_.get(), out, out, task.count, task.dtype,
                                                   task.op, &opts, &request),
                                  task.name));
        return request;
    }
    if (alone() && devices_.size() == 1) {
        TRAINER_TRY(devices_.front()->copy(out, task.in.front(), task.bytes()));
        return nullptr;
    }
    TRAINER_TRY(from_call(
        tutti_iallreduce_multi(comm_.get(), task.in.data(), static_cast<int>(task.in.size()), out,
                               task.count, task.dtype, task.op, &opts, &request),
        task.name));
    return request;
}

Result<tutti_request*> Collectives::begin(Task& task) {
    ++issued_;
    if (task.whole) {
        TRAINER_ASSIGN(const uint64_t bytes, task.whole());
        bytes_ += bytes;
        return nullptr;
    }
    if (!alone()) bytes_ += task.bytes();
    if (task.widens) TRAINER_TRY(widen(task));
    const auto devices = devices_.size();
    const auto root = static_cast<std::size_t>(task.root);
    const tutti_call_opts opts = options(task);
    tutti_request* request = nullptr;
    switch (task.kind) {
        case TUTTI_COLLECTIVE_ALLREDUCE:
            return reduce_all(task, task.out.front());
        case TUTTI_COLLECTIVE_BROADCAST:
            if (root / devices == static_cast<std::size_t>(comm_.rank()))
                TRAINER_TRY(devices_.front()->copy(task.out.front(), task.in[root % devices],
                                                   task.bytes()));
            if (!alone())
                TRAINER_TRY(from_call(
                    tutti_ibroadcast(comm_.get(), task.out.front(), task.count, task.dtype,
                                     static_cast<int>(root / devices), &opts, &request),
                    task.name));
            return request;
        case TUTTI_COLLECTIVE_REDUCE:
            if (devices > 1) return reduce_all(task, task.out.front());
            TRAINER_TRY(
                from_call(tutti_ireduce(comm_.get(), task.in.front(), task.out.front(), task.count,
                                        task.dtype, task.op, task.root, &opts, &request),
                          task.name));
            return request;
        case TUTTI_COLLECTIVE_ALLGATHER: {
            for (std::size_t d = 0; d < devices; ++d)
                TRAINER_TRY(devices_.front()->copy(
                    block(task.out.front(), here() + d, task.bytes()), task.in[d], task.bytes()));
            if (!alone())
                TRAINER_TRY(from_call(
                    tutti_iallgather(comm_.get(), block(task.out.front(), here(), task.bytes()),
                                     task.out.front(), task.count * devices, task.dtype, &opts,
                                     &request),
                    task.name));
            return request;
        }
        case TUTTI_COLLECTIVE_REDUCE_SCATTER:
            if (devices > 1) return reduce_all(task, task.scratch.data());
            TRAINER_TRY(
                from_call(tutti_ireduce_scatter(comm_.get(), task.in.front(), task.out.front(),
                                                task.count / static_cast<std::size_t>(comm_.size()),
                                                task.dtype, task.op, &opts, &request),
                          task.name));
            return request;
    }
    return nullptr;
}

Result<> Collectives::copy_all(const Task& task, std::size_t bytes) {
    for (std::size_t d = 1; d < devices_.size(); ++d)
        TRAINER_TRY(devices_[d]->copy(task.out[d], task.out.front(), bytes));
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
    TRAINER_TRY(spread(task));
    for (std::size_t d = 0; d < task.narrow.size(); ++d)
        TRAINER_TRY(devices_[d]->convert(task.count, task.dtype, task.out[d], task.narrow_dtype,
                                         task.narrow[d]));
    return {};
}

Result<> Collectives::spread(Task& task) {
    const auto devices = devices_.size();
    const auto replicas = devices * static_cast<std::size_t>(comm_.size());
    switch (task.kind) {
        case TUTTI_COLLECTIVE_ALLREDUCE:
        case TUTTI_COLLECTIVE_BROADCAST:
            return copy_all(task, task.bytes());
        case TUTTI_COLLECTIVE_ALLGATHER:
            return copy_all(task, task.bytes() * replicas);
        case TUTTI_COLLECTIVE_REDUCE: {
            const auto root = static_cast<std::size_t>(task.root);
            if (root / devices != static_cast<std::size_t>(comm_.rank())) return {};
            return devices_[root % devices]->copy(task.out[root % devices], task.out.front(),
                                                  task.bytes());
        }
        case TUTTI_COLLECTIVE_REDUCE_SCATTER: {
            if (devices == 1) return {};
            const std::size_t bytes = task.bytes() / replicas;
            for (std::size_t d = 0; d < devices; ++d)
                TRAINER_TRY(devices_[d]->copy(
                    task.out[d], block(task.scratch.data(), here() + d, bytes), bytes));
            return {};
        }
    }
    return {};
}

}  // namespace tutti::trainer
