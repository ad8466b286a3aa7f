#include <algorithm>

#include "trainer/plan/program.h"

namespace tutti::trainer {
namespace {

bool contains(const std::vector<int>& list, int buffer) {
    return std::ranges::find(list, buffer) != list.end();
}

// Micro-batches add to the gradient of a parameter, except with a fixed order, which stores it
// after each one, or if only the last one uses it.
bool accumulates(const ModelRecorder& recorder, const Program& micro, bool fixed_order,
                 int gradient) {
    const int of = recorder.buffer(gradient).gradient_of;
    if (of == none || recorder.buffer(of).kind != TUTTI_PARAMETER) return false;
    if (fixed_order && recorder.buffer(of).bucketed()) return false;
    return std::ranges::any_of(micro.nodes, [gradient](const ProgramNode& node) {
        return contains(node.reads, gradient) || contains(node.writes, gradient);
    });
}

// A list of rows has only its length set to zero: the rows behind its end have no meaning.
bool begins_at_zero(const ModelRecorder& recorder, int b) {
    const Buffer& buffer = recorder.buffer(b);
    if (buffer.kind != TUTTI_GRADIENT) return false;
    if (buffer.gradient_of == none || !recorder.buffer(buffer.gradient_of).sparse()) return true;
    return b == recorder.buffer(buffer.gradient_of).sparse_count;
}

}  // namespace

void mark_zeroes(StepPlan& plan, const ModelRecorder& recorder, bool fixed_order) {
    for (Program* program : {&plan.micro, &plan.last}) {
        std::vector<bool> seen(recorder.buffers().size());
        for (ProgramNode& node : program->nodes) {
            const bool seeds = node.own && node.reads.empty();
            for (const auto* list : {&node.reads, &node.writes})
                for (int b : *list) {
                    const auto at = static_cast<std::size_t>(b);
                    if (!begins_at_zero(recorder, b) || seen[at]) continue;
                    seen[at] = true;
                    if (seeds) continue;
                    node.zero.push_back(b);
                    if (accumulates(recorder, plan.micro, fixed_order, b))
                        node.adds_up.push_back(b);
                }
        }
    }
}

}  // namespace tutti::trainer
