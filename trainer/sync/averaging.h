// LocalSGD: every k steps the replicas' ways since the last time are averaged.
#pragma once

#include <deque>

#include "trainer/plan/layout.h"

namespace tutti::training {

class Averaging {
public:
    Averaging(std::deque<Group>& parameters, std::vector<Device*> devices);

    /// The parameters as they are now are where the next ways begin.
    void remember();
    /// way = parameters - snapshot
    void take_way(std::size_t group, std::size_t device);
    /// snapshot and parameters = snapshot + way, which is by now the average
    void go_way(std::size_t group, std::size_t device);
    std::vector<void*> ways(std::size_t group) const;

private:
    struct Pieces {
        std::vector<DeviceMemory> snapshot, way;  // by device
    };
    std::deque<Group>& parameters_;
    std::vector<Device*> devices_;
    std::vector<Pieces> pieces_;  // by group
};

}  // namespace tutti::training
