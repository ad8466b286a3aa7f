#include "trainer/execution/executors.h"

namespace tutti::training {

void SerialExecutor::complete_oldest(const Program& program, const RunContext& context) {
    Pending oldest = pending_.front();
    pending_.pop_front();
    const Node& node = program.nodes[static_cast<std::size_t>(oldest.node)];
    engine_.wait(node, &oldest.request);
    engine_.end(node, context);
}

void SerialExecutor::complete_through(const Program& program, const RunContext& context, int node) {
    const auto waiting = [&] {
        for (const Pending& p : pending_)
            if (p.node == node) return true;
        return false;
    };
    while (waiting()) complete_oldest(program, context);
}

void SerialExecutor::run_in_order(Program& program, const RunContext& context) {
    for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
        const Node& node = program.nodes[static_cast<std::size_t>(n)];
        if (!pending_.empty())
            for (int before : node.before) complete_through(program, context, before);
        if (node.task == none) {
            engine_.run(node, context);
            continue;
        }
        while (pending_.size() >= max_in_flight_) complete_oldest(program, context);
        if (tutti_request* request = engine_.begin(node, context))
            pending_.push_back({n, request});
        else
            engine_.end(node, context);
    }
    while (!pending_.empty()) complete_oldest(program, context);
}

void SerialExecutor::run(Program& program, const RunContext& context) {
    try {
        run_in_order(program, context);
    } catch (...) {
        engine_.give_up(std::current_exception());
        for (Pending& p : pending_) tutti_wait(&p.request, -1);  // the first cause is told
        pending_.clear();
        throw;
    }
}

}  // namespace tutti::training
