// The collectives of a model's programs.
#pragma once

#include <deque>
#include <vector>

#include "trainer/plan/layout.h"
#include "trainer/sync/collectives.h"

namespace tutti::trainer {

/// Tasks by number. A task gets its stream, round robin over the rings, when it is added, and its
/// pointers once the model's memory is allocated. Ranks that add the same tasks in the same order
/// agree on their streams. Tasks do not move in memory.
class TaskTable {
public:
    explicit TaskTable(int rings) : rings_(rings) {}

    int add(Task task);
    Task& at(int task) { return tasks_[static_cast<std::size_t>(task)]; }
    std::deque<Task>& all() { return tasks_; }
    const std::deque<Task>& all() const { return tasks_; }

    /// The task's buffers, by device; bind_buffers gives it their addresses.
    void use_buffers(int task, std::vector<int> in, std::vector<int> out);
    void bind_buffers(const ModelRecorder& recorder);
    /// Lets the task read and write the group's elements at the pointers, one for each device.
    void bind_group(int task, const BufferGroup& group, std::vector<void*> pointers);

private:
    struct Binding {
        int task;
        std::vector<int> in, out;  // buffers, by device
    };
    int rings_;
    int next_stream_ = 0;
    std::deque<Task> tasks_;
    std::vector<Binding> bindings_;
};

}  // namespace tutti::trainer
