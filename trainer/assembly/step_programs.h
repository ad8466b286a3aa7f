// The programs of a step, made of the operations and collectives that the builders declared.
#pragma once

#include "trainer/plan/program.h"
#include "trainer/sync/replicas.h"
#include "trainer/sync/task_table.h"

namespace tutti::trainer {

struct ComputeProgram {
    Program program;
    std::size_t backward_begin = 0;  // the first node of the backward pass
};

/// Inputs and forward operations of all devices and, if wanted, their backward pass. Declares
/// the gradients that it needs, and adds the tasks of collectives.
Result<ComputeProgram> make_compute_program(ModelRecorder& recorder, const Replicas& replicas,
                                            TaskTable& tasks, bool with_backward);

/// Appends the operations of the update builders.
Result<> append_update(Program& program, const ModelRecorder& recorder, const Replicas& replicas,
                       TaskTable& tasks);

}  // namespace tutti::trainer
