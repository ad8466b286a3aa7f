// LocalSGD: every k steps the replicas' ways since the last time are averaged. Ways and snapshots
// of 16-bit parameters are float32.
#pragma once

#include <deque>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

class Averaging {
public:
    Averaging(std::deque<Group>& parameters, std::vector<Device*> devices)
        : parameters_(parameters), devices_(std::move(devices)) {}
    Result<> allocate();

    /// The parameters as they are now are where the next ways begin.
    Result<> remember();
    /// way = parameters - snapshot
    Result<> compute_delta(std::size_t group, std::size_t device);
    /// snapshot and parameters = snapshot + way, which is by now the average
    Result<> apply_delta(std::size_t group, std::size_t device);
    std::vector<void*> ways(std::size_t group) const;

private:
    Result<> widen(std::size_t group, std::size_t device, void* to);

    struct Pieces {
        std::vector<DeviceMemory> snapshot, way;  // by device
    };
    std::deque<Group>& parameters_;
    std::vector<Device*> devices_;
    std::vector<Pieces> pieces_;  // by group
};

}  // namespace tutti::trainer
