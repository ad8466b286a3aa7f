#include "trainer/sync/task_table.h"

namespace tutti::trainer {

int TaskTable::add(Task task) {
    task.stream = next_stream_++ % rings_;
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
}

void TaskTable::use_buffers(int task, std::vector<int> in, std::vector<int> out) {
    bindings_.push_back({task, std::move(in), std::move(out)});
}

void TaskTable::bind_buffers(const ModelRecorder& recorder) {
    for (const Binding& binding : bindings_) {
        Task& task = at(binding.task);
        for (int b : binding.in) task.in.push_back(recorder.buffer(b).data);
        for (int b : binding.out) task.out.push_back(recorder.buffer(b).data);
    }
    bindings_.clear();
}

void TaskTable::bind_group(int index, const BufferGroup& group, std::vector<void*> pointers) {
    Task& task = at(index);
    task.count = group.count();
    task.in = task.out = std::move(pointers);
}

}  // namespace tutti::trainer
