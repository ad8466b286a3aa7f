// LocalSGD: every k steps the replicas average the deltas of their parameters since the last
// average. Deltas and snapshots of 16-bit parameters are float32.
#pragma once

#include <deque>
#include <vector>

#include "trainer/sync/task_table.h"

namespace tutti::trainer {

/// A snapshot is the same on all replicas: the parameters after the last average.
class Averaging {
public:
    Averaging(std::deque<BufferGroup>& parameters, const std::vector<Device*>& devices,
              TaskTable& tasks)
        : parameters_(parameters), devices_(devices), tasks_(tasks) {}

    /// Appends the nodes of each group: its deltas, their average, the new parameters.
    void append_to(Program& program, int every);
    /// Allocates snapshots and deltas, after the parameters have their memory.
    Result<> allocate();
    void bind();
    /// Takes a snapshot of the parameters: the next deltas are relative to it.
    Result<> take_snapshot();

private:
    /// delta = parameters - snapshot
    Result<> compute_delta(std::size_t group, std::size_t device);
    /// snapshot and parameters = snapshot + delta, after the collective has averaged delta
    Result<> apply_delta(std::size_t group, std::size_t device);
    Result<> widen(std::size_t group, std::size_t device, void* to);
    using DeltaFunction = Result<> (Averaging::*)(std::size_t, std::size_t);
    void append_on_devices(Program& program, std::size_t group, const char* what, int every,
                           DeltaFunction function);

    struct Pieces {
        std::vector<DeviceAllocation> snapshot, delta;  // by device
    };
    std::deque<BufferGroup>& parameters_;
    const std::vector<Device*>& devices_;
    TaskTable& tasks_;
    std::vector<int> group_tasks_;  // by group
    std::vector<Pieces> pieces_;    // by group
};

}  // namespace tutti::trainer
