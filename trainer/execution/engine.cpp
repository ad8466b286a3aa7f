#include "trainer/execution/engine.h"

#include <algorithm>

namespace tutti::trainer {
namespace {

constexpr const char* declare_advice =
    "declare each buffer that the operation uses in its reads or writes";

struct OperationCall {
    tutti_step* step;
    tutti_status status = TUTTI_OK;
    std::string thrown;
};

// Catches exceptions here: a device's runtime may be between this function and its caller.
void call_back(void* argument) {
    auto* work = static_cast<OperationCall*>(argument);
    try {
        work->status = work->step->node->call(work->step, work->step->node->user);
    } catch (const std::exception& error) {
        work->thrown = error.what();
        work->status = TUTTI_ERR_SYSTEM;
    } catch (...) {
        work->thrown = "an exception of unknown type";
        work->status = TUTTI_ERR_SYSTEM;
    }
}

}  // namespace

Result<> Engine::zero(const ProgramNode& node, const RunContext& context) {
    for (int b : node.zero) {
        if (context.micro > 0 && std::ranges::find(node.adds_up, b) != node.adds_up.end()) continue;
        const Buffer& buffer = recorder_.buffer(b);
        TRAINER_TRY(device(buffer.device).zero(buffer.data, buffer.bytes));
    }
    return {};
}

Result<> Engine::call(const ProgramNode& node, const RunContext& context) {
    tutti_step step{&recorder_, &node, &context, {}};
    OperationCall work{&step, TUTTI_OK, {}};
    if (checker_) TRAINER_TRY(checker_->begin(node));
    const Result<> ran = device(node.device).run(call_back, &work);
    if (checker_) {
        TRAINER_ASSIGN(const std::string violation, checker_->end());
        if (!violation.empty())
            return invalid("operation '{}' {}", node.name, violation).advice("{}", declare_advice);
    }
    TRAINER_TRY(ran);
    if (!step.failure.empty())
        return invalid("operation '{}' {}", node.name, step.failure).advice("{}", declare_advice);
    if (!work.thrown.empty())
        return fail(work.status, "operation '{}' threw an exception: {}", node.name, work.thrown)
            .advice("correct the operation's function");
    if (work.status != TUTTI_OK)
        return fail(work.status, "operation '{}' failed: {}", node.name,
                    tutti_status_string(work.status))
            .advice("look at why the operation's function returned this status");
    return {};
}

Result<> Engine::run(const ProgramNode& node, const RunContext& context) {
    TRAINER_TRY(zero(node, context));
    if (node.of_samples && context.has_no_samples(node.device)) return {};
    return node.own ? node.own(context) : call(node, context);
}

Result<tutti_request*> Engine::begin(const ProgramNode& node, const RunContext& context) {
    TRAINER_TRY(zero(node, context));
    Task& task = task_of(node);
    if (!context.is_turn(task.every)) return nullptr;
    if (node.of_samples)
        for (int b : node.reads) {
            const Buffer& buffer = recorder_.buffer(b);
            if (!context.has_no_samples(buffer.device)) continue;
            if (buffer.kind == TUTTI_ACTIVATION || buffer.kind == TUTTI_GRADIENT)
                TRAINER_TRY(device(buffer.device).zero(buffer.data, buffer.bytes));
        }
    TRAINER_ASSIGN(tutti_request * request, collectives_.begin(task));
    if (!checker_ || !request) return request;
    TRAINER_TRY(wait(node, &request));  // an active transfer would access protected pages
    return nullptr;
}

Result<> Engine::end(const ProgramNode& node, const RunContext& context) {
    Task& task = task_of(node);
    if (!context.is_turn(task.every)) return {};
    return collectives_.end(task);
}

Result<bool> Engine::wait(const ProgramNode& node, tutti_request** request, int64_t timeout_ms) {
    const tutti_status status = tutti_wait(request, timeout_ms);
    if (status == TUTTI_IN_PROGRESS) return false;
    if (status != TUTTI_OK) TRAINER_TRY(from_call(status, fmt::format("'{}'", node.name)));
    return true;
}

}  // namespace tutti::trainer

bool tutti_step::declares(int buffer) const {
    return std::ranges::find(node->reads, buffer) != node->reads.end() ||
           std::ranges::find(node->writes, buffer) != node->writes.end();
}

void* tutti_step::data(int buffer) {
    if (declares(buffer)) return recorder->buffer(buffer).data;
    if (failure.empty())
        failure = recorder->valid(buffer)
                      ? fmt::format("uses '{}', which it does not declare",
                                    recorder->buffer(buffer).full_name())
                      : fmt::format("uses the handle {}, which is not a buffer", buffer);
    return nullptr;
}
