#include "trainer/sync/computed_sync.h"

namespace tutti::trainer {

void ComputedSync::append_to(Program& program, bool mean, int every) {
    for (const BufferGroup& group : groups_) {
        const bool averages = mean && is_floating(group.dtype);
        Task task{.name = group.name,
                  .kind = averages ? TUTTI_COLLECTIVE_ALLREDUCE : TUTTI_COLLECTIVE_BROADCAST,
                  .op = TUTTI_AVG,
                  .dtype = group.dtype};
        task.every = every;
        ProgramNode node = group_node(group, group.name, none);
        node.task = tasks_.add(std::move(task));
        group_tasks_.push_back(node.task);
        program.nodes.push_back(std::move(node));
    }
}

void ComputedSync::bind() {
    for (std::size_t g = 0; g < group_tasks_.size(); ++g)
        tasks_.bind_group(group_tasks_[g], groups_[g], groups_[g].pointers());
}

void ComputedSync::set_root(int replica) {
    for (int task : group_tasks_) tasks_.at(task).root = replica;
}

}  // namespace tutti::trainer
