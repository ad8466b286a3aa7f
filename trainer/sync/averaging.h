// LocalSGD: every k steps the replicas average the deltas of their parameters since the last
// average. Deltas and snapshots of 16-bit parameters are float32.
#pragma once

#include <deque>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

class Averaging {
public:
    Averaging(std::deque<Group>& parameters, std::vector<Device*> devices)
        : parameters_(parameters), devices_(std::move(devices)) {}
    Result<> allocate();

    /// Takes a snapshot of the parameters: the next deltas are relative to it.
    Result<> take_snapshot();
    /// delta = parameters - snapshot
    Result<> compute_delta(std::size_t group, std::size_t device);
    /// snapshot and parameters = snapshot + delta, which the collective has averaged before
    Result<> apply_delta(std::size_t group, std::size_t device);
    std::vector<void*> deltas(std::size_t group) const;

private:
    Result<> widen(std::size_t group, std::size_t device, void* to);

    struct Pieces {
        std::vector<DeviceMemory> snapshot, delta;  // by device
    };
    std::deque<Group>& parameters_;
    std::vector<Device*> devices_;
    std::vector<Pieces> pieces_;  // by group
};

}  // namespace tutti::trainer
