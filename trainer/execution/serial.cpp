#include "trainer/base/boundary.h"
#include "trainer/execution/executors.h"

namespace tutti::trainer {

Result<> SerialExecutor::complete_oldest(const Program& program, const RunContext& context) {
    PendingCollective oldest = pending_.front();
    pending_.pop_front();
    const ProgramNode& node = program.nodes[static_cast<std::size_t>(oldest.node)];
    TRAINER_TRY(engine_.wait(node, &oldest.request));
    return engine_.end(node, context);
}

Result<> SerialExecutor::complete_through(const Program& program, const RunContext& context,
                                          int node) {
    const auto waiting = [&] {
        for (const PendingCollective& p : pending_)
            if (p.node == node) return true;
        return false;
    };
    while (waiting()) TRAINER_TRY(complete_oldest(program, context));
    return {};
}

Result<> SerialExecutor::run_in_order(Program& program, const RunContext& context) {
    for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
        const ProgramNode& node = program.nodes[static_cast<std::size_t>(n)];
        if (!pending_.empty())
            for (int before : node.before) TRAINER_TRY(complete_through(program, context, before));
        if (node.task == none) {
            TRAINER_TRY(engine_.run(node, context));
            continue;
        }
        while (pending_.size() >= max_in_flight_) TRAINER_TRY(complete_oldest(program, context));
        TRAINER_ASSIGN(tutti_request* const request, engine_.begin(node, context));
        if (request)
            pending_.push_back({n, request});
        else
            TRAINER_TRY(engine_.end(node, context));
    }
    while (!pending_.empty()) TRAINER_TRY(complete_oldest(program, context));
    return {};
}

Result<> SerialExecutor::run(Program& program, const RunContext& context) {
    Result<> done = contain([&] { return run_in_order(program, context); });
    if (done) return done;
    engine_.abort_after(done.error());
    for (PendingCollective& p : pending_) {
        const auto over = engine_.wait(program.nodes[static_cast<std::size_t>(p.node)], &p.request);
        if (!over) prefer_mismatch(done, over.error());
    }
    pending_.clear();
    return done;
}

}  // namespace tutti::trainer
