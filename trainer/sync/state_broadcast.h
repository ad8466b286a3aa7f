// The synchronisation of a model's whole state, before the first step and after changes by hand.
#pragma once

#include <vector>

#include "trainer/sync/task_table.h"

namespace tutti::trainer {

/// Broadcasts all groups from one replica, concurrently.
class StateBroadcast {
public:
    StateBroadcast(TaskTable& tasks, Collectives& collectives, const Comm& comm)
        : tasks_(tasks), collectives_(collectives), comm_(comm) {}

    /// Adds the groups' tasks; the groups have their memory.
    void add_tasks(const std::vector<BufferGroup*>& groups);
    /// Collective. After a failure it returns once no broadcast is running.
    Result<> run(int root = 0);

private:
    struct Started {
        Task* task;
        tutti_request* request;
    };
    Result<> start_all(std::vector<Started>& started);

    TaskTable& tasks_;
    Collectives& collectives_;
    const Comm& comm_;
    std::vector<int> group_tasks_;
};

}  // namespace tutti::trainer
