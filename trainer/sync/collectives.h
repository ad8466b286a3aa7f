// Collectives among all replicas: the devices of this process, then the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// Host memory that replaces device memory which libtutti cannot access.
struct Staging {
    std::vector<std::byte> in;  // the devices' inputs, one after the other
    std::vector<std::byte> out;
    void* to = nullptr;  // on device 0: the target of out when the call is done; NULL: none
    std::vector<DeviceAllocation> peers = {};  // by device: a copy of another's input, if apart
};

/// The names that the collectives of the layer's operations carry, so that collectives of different
/// operations do not match. libtutti has a number for each (numbered_names).
inline constexpr const char* step_name = "trainer step";
inline constexpr const char* sync_name = "trainer sync";

/// One collective, bound to its buffers.
struct Task {
    std::string name;
    const char* operation = step_name;  // the operation that it is part of
    tutti_collective_kind kind = TUTTI_COLLECTIVE_ALLREDUCE;
    tutti_op op = TUTTI_SUM;
    int root = 0;  // replica
    tutti_dtype dtype = TUTTI_FLOAT32;
    std::size_t count = 0;           // of in
    std::vector<void*> in, out;      // by local device
    std::vector<void*> narrow = {};  // by local device: 16-bit buffers whose float32 are in and out
    tutti_dtype narrow_dtype = TUTTI_FLOAT32;
    bool widens = false;  // in is made of narrow before; out is rounded to it in any case
    int stream = 0;
    int every = 1;  // steps
    bool is_bucket = false;
    std::function<Result<uint64_t>()> whole = {};  // replaces the three parts; returns bytes
    uint64_t whole_bytes = 0;                      // the sum of its results so far
    int whole_of = -1;                             // the parameter, on device 0
    DeviceAllocation scratch = {};                 // on device 0, for kinds that need it
    Staging staging = {};

    std::size_t bytes() const { return count * tutti_dtype_size(dtype); }
};

/// Issues tasks in the order of the calls, each in three parts: work on the devices, the request,
/// work on the devices again.
class Collectives {
public:
    Collectives(const Comm& comm, std::vector<Device*> devices, bool fixed_order);

    /// Allocates what the task needs while it runs.
    Result<> prepare(Task& task);
    /// Does the work on the devices and issues the request. NULL: there is no request.
    Result<tutti_request*> begin(Task& task);
    /// Call it when the request is done: gives every device its result.
    Result<> end(Task& task);

    int64_t issued() const { return issued_; }
    uint64_t bytes() const { return bytes_; }

private:
    std::size_t first_replica() const {
        return static_cast<std::size_t>(comm_.rank()) * devices_.size();
    }
    bool is_single_rank() const { return comm_.size() == 1; }
    Result<tutti_request*> broadcast(Task& task);
    Result<tutti_request*> allgather(Task& task);
    Result<tutti_request*> reduce(Task& task);
    Result<tutti_request*> reduce_scatter(Task& task);
    Result<tutti_request*> reduce_all(Task& task, void* out);
    /// Sums on the devices, then over the ranks.
    Result<tutti_request*> add_on_devices(Task& task);
    Result<> add(Task& task, std::size_t to, std::size_t from);
    Result<> add_in_pairs(Task& task);
    /// The memory that libtutti reads for a device, and writes for device 0: the device's own, or
    /// the host's staging memory.
    Result<void*> stage_input(Task& task, std::size_t device);
    void* stage_output(Task& task, void* to, std::size_t bytes);
    Result<> copy_staged_output(Task& task);
    /// Copies input d into memory that stage_output returned.
    Result<> copy_input(Task& task, std::size_t d, void* to);
    Result<> copy_to_device(Task& task, std::size_t to, const void* from, std::size_t bytes);
    Result<> widen(Task& task);
    Result<> copy_results(Task& task);
    Result<> copy_to_devices(Task& task, std::size_t bytes);
    tutti_call_opts options(const Task& task) const;

    const Comm& comm_;
    std::vector<Device*> devices_;
    bool fixed_order_;
    bool staged_;  // libtutti and other devices cannot access a device's memory
    bool apart_;   // no device's functions get another device's memory
    int64_t issued_ = 0;
    uint64_t bytes_ = 0;
};

}  // namespace tutti::trainer
