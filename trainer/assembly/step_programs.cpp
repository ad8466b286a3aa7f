#include "trainer/assembly/step_programs.h"

#include <algorithm>
#include <iterator>

#include "trainer/plan/backward.h"

namespace tutti::trainer {
namespace {

// A collective that the builders declared, or the reverse of one: its node gets a task.
auto add_collectives(const ModelRecorder& recorder, TaskTable& tasks) {
    return [&recorder, &tasks](ProgramNode& node, const std::vector<DeviceItem>& parts) {
        const CollectiveCall& call = *parts.front().collective;
        const Buffer& input = recorder.buffer(parts.front().node.reads.front());
        node.task = tasks.add({.name = node.name,
                               .kind = call.kind,
                               .op = call.op,
                               .root = call.root,
                               .dtype = input.dtype,
                               .count = input.count()});
        std::vector<int> in, out;
        for (const DeviceItem& part : parts) {
            in.push_back(part.node.reads.front());
            out.push_back(part.node.writes.front());
        }
        tasks.use_buffers(node.task, std::move(in), std::move(out));
    };
}

}  // namespace

Result<ComputeProgram> make_compute_program(ModelRecorder& recorder, const Replicas& replicas,
                                            TaskTable& tasks, bool with_backward) {
    const auto add_task = add_collectives(recorder, tasks);
    ComputeProgram made;
    std::vector<DeviceItems> lists;
    for (int d = 0; d < replicas.local(); ++d) {
        DeviceItems items = items_of(recorder, d, BuilderPhase::input, replicas.devices);
        DeviceItems forward = items_of(recorder, d, BuilderPhase::forward, replicas.devices);
        std::ranges::move(forward, std::back_inserter(items));
        lists.push_back(std::move(items));
    }
    TRAINER_TRY(merge(made.program, std::move(lists), recorder, add_task));
    made.backward_begin = made.program.nodes.size();
    if (!with_backward) return made;
    lists.clear();
    for (int d = 0; d < replicas.local(); ++d) {
        TRAINER_ASSIGN(DeviceItems items, backward_items(recorder, d, replicas.number(d),
                                                         replicas.count(), replicas.devices));
        lists.push_back(std::move(items));
    }
    TRAINER_TRY(merge(made.program, std::move(lists), recorder, add_task));
    return made;
}

Result<> append_update(Program& program, const ModelRecorder& recorder, const Replicas& replicas,
                       TaskTable& tasks) {
    std::vector<DeviceItems> lists;
    for (int d = 0; d < replicas.local(); ++d)
        lists.push_back(items_of(recorder, d, BuilderPhase::update, replicas.devices));
    const std::size_t begin = program.nodes.size();
    TRAINER_TRY(merge(program, std::move(lists), recorder, add_collectives(recorder, tasks)));
    for (std::size_t n = begin; n < program.nodes.size(); ++n) program.nodes[n].updates = true;
    return {};
}

}  // namespace tutti::trainer
