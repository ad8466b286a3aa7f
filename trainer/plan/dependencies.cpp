#include <algorithm>

#include "trainer/plan/program.h"

namespace tutti::trainer {
namespace {

struct Use {
    int last_writer = none;
    std::vector<int> readers;  // since then
    int first = none;
    std::vector<int> all;
};

void depend(Program& program, int node, int on) {
    if (on != none && on != node)
        program.nodes[static_cast<std::size_t>(node)].before.push_back(on);
}

void touch(Use& use, int node) {
    if (use.first == none) use.first = node;
    use.all.push_back(node);
}

std::vector<Use> order_by_buffers(Program& program, std::size_t buffers) {
    std::vector<Use> uses(buffers);
    for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
        const ProgramNode& node = program.nodes[static_cast<std::size_t>(n)];
        const std::vector<int> reads = node.reads;
        std::vector<int> writes = node.writes;
        writes.insert(writes.end(), node.zero.begin(), node.zero.end());
        for (int b : reads) {
            Use& use = uses[static_cast<std::size_t>(b)];
            depend(program, n, use.last_writer);
            use.readers.push_back(n);
            touch(use, n);
        }
        for (int b : writes) {
            Use& use = uses[static_cast<std::size_t>(b)];
            depend(program, n, use.last_writer);
            for (int reader : use.readers) depend(program, n, reader);
            use.readers.clear();
            use.last_writer = n;
            touch(use, n);
        }
    }
    return uses;
}

bool same_memory(const Buffer& a, const Buffer& b) {
    const auto* x = static_cast<const std::byte*>(a.data);
    const auto* y = static_cast<const std::byte*>(b.data);
    return a.device == b.device && x < y + b.bytes && y < x + a.bytes;
}

}  // namespace

void find_dependencies(Program& program, const ModelRecorder& recorder) {
    for (ProgramNode& node : program.nodes) {
        node.before.clear();
        node.after.clear();
    }
    const std::vector<Use> uses = order_by_buffers(program, recorder.buffers().size());
    std::vector<int> sharing;
    for (int b = 0; b < static_cast<int>(uses.size()); ++b)
        if (recorder.buffer(b).shares_memory && uses[static_cast<std::size_t>(b)].first != none)
            sharing.push_back(b);
    for (int a : sharing)
        for (int b : sharing) {
            const Use& earlier = uses[static_cast<std::size_t>(a)];
            const Use& later = uses[static_cast<std::size_t>(b)];
            if (earlier.all.back() >= later.first ||
                !same_memory(recorder.buffer(a), recorder.buffer(b)))
                continue;
            for (int n : earlier.all) depend(program, later.first, n);
        }
    for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
        std::vector<int>& before = program.nodes[static_cast<std::size_t>(n)].before;
        std::ranges::sort(before);
        before.erase(std::unique(before.begin(), before.end()), before.end());
        for (int on : before) program.nodes[static_cast<std::size_t>(on)].after.push_back(n);
    }
}

void hold_updates(Program& program) {
    std::vector<int> collectives;
    for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
        ProgramNode& node = program.nodes[static_cast<std::size_t>(n)];
        if (!node.updates) {
            if (node.task != none) collectives.push_back(n);
            continue;
        }
        for (int on : collectives) {
            if (std::ranges::find(node.before, on) != node.before.end()) continue;
            node.before.push_back(on);
            program.nodes[static_cast<std::size_t>(on)].after.push_back(n);
        }
    }
}

std::vector<bool> written_before_update(const StepPlan& plan, const ModelRecorder& recorder) {
    // An update with collectives of its own may fail in these.
    const bool whole = std::ranges::any_of(
        plan.last.nodes, [](const ProgramNode& n) { return n.updates && n.task != none; });
    std::vector<bool> written(recorder.buffers().size());
    for (const Program* program : {&plan.micro, &plan.last})
        for (const ProgramNode& node : program->nodes)
            if (whole || !node.updates)
                for (int b : node.writes) written[static_cast<std::size_t>(b)] = true;
    return written;
}

}  // namespace tutti::trainer
