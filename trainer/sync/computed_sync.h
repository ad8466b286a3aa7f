// Parameters that operations compute, not the optimiser, such as batch-norm statistics.
#pragma once

#include <deque>
#include <vector>

#include "trainer/sync/task_table.h"

namespace tutti::trainer {

/// Broadcasts each group from one replica, or averages it over all, at an interval of steps.
class ComputedSync {
public:
    ComputedSync(std::deque<BufferGroup>& groups, TaskTable& tasks)
        : groups_(groups), tasks_(tasks) {}

    /// mean: floating-point groups are averaged.
    void append_to(Program& program, bool mean, int every);
    void bind();
    /// Sets the replica with the newest values: the first that had samples.
    void set_root(int replica);

private:
    std::deque<BufferGroup>& groups_;
    TaskTable& tasks_;
    std::vector<int> group_tasks_;  // by group
};

}  // namespace tutti::trainer
