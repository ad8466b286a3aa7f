// Runs single nodes; the executors decide when.
#pragma once

#include <deque>

#include "trainer/execution/checker.h"
#include "trainer/plan/program.h"
#include "trainer/sync/collectives.h"

/// The argument of a running operation.
struct tutti_step {
    const tutti::trainer::ModelRecorder* recorder;
    const tutti::trainer::ProgramNode* node;
    const tutti::trainer::RunContext* context;
    std::string failure;

    void* data(int buffer);
    bool declares(int buffer) const;
};

namespace tutti::trainer {

class Engine {
public:
    Engine(const ModelRecorder& recorder, std::vector<Device*> devices, const Comm& comm,
           Collectives& collectives, std::deque<Task>& tasks)
        : recorder_(recorder),
          devices_(std::move(devices)),
          comm_(comm),
          collectives_(collectives),
          tasks_(tasks) {}

    void check_declarations() { checker_.emplace(recorder_, devices_); }

    /// Runs a node that is not a collective.
    Result<> run(const ProgramNode& node, const RunContext& context);
    /// Issues a collective; returns NULL if there is nothing to wait for.
    Result<tutti_request*> begin(const ProgramNode& node, const RunContext& context);
    Result<> end(const ProgramNode& node, const RunContext& context);
    /// Waits for the request; an error has the task's name. False: it still runs after timeout_ms.
    Result<bool> wait(const ProgramNode& node, tutti_request** request, int64_t timeout_ms = -1);

    /// Aborts the communicator after a failure, so that the other ranks do not wait for this one;
    /// no effect if all ranks have the failure.
    void abort_after(const Error& cause) const { comm_.abort_after(cause); }

private:
    Task& task_of(const ProgramNode& node) { return tasks_[static_cast<std::size_t>(node.task)]; }
    Device& device(int index) { return *devices_[static_cast<std::size_t>(index)]; }
    Result<> zero(const ProgramNode& node, const RunContext& context);
    Result<> call(const ProgramNode& node, const RunContext& context);

    const ModelRecorder& recorder_;
    std::vector<Device*> devices_;
    const Comm& comm_;
    Collectives& collectives_;
    std::deque<Task>& tasks_;
    std::optional<Checker> checker_;
};

/// A collective that was issued and has not ended.
struct PendingCollective {
    int node;  // of the program
    tutti_request* request;
};

/// Replaces the step's failure by another one of the same step if that is a mismatch: a mismatch
/// causes later failures, such as a call that is refused because the other ranks have left.
inline void prefer_mismatch(Result<>& failure, const Error& other) {
    const bool is_cause = !failure && failure.error().status != TUTTI_ERR_MISMATCH;
    if (is_cause && other.status == TUTTI_ERR_MISMATCH) failure = tl::unexpected<Error>(other);
}

class Executor {
public:
    virtual ~Executor() = default;
    /// Runs every node once. On failure returns the first cause, after all nodes have ended.
    virtual Result<> run(Program& program, const RunContext& context) = 0;
};

}  // namespace tutti::trainer
