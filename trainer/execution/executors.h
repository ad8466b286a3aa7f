// Executors: in the order of the program on the caller's thread, or as a graph on a pool of
// threads. Both issue collectives in the program's order, which is the same on every rank.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>

#include "trainer/execution/engine.h"

namespace tutti::trainer {

class SerialExecutor final : public Executor {
public:
    SerialExecutor(Engine& engine, int max_in_flight)
        : engine_(engine), max_in_flight_(static_cast<std::size_t>(max_in_flight)) {}
    Result<> run(Program& program, const RunContext& context) override;

private:
    Result<> run_in_order(Program& program, const RunContext& context);
    Result<> complete_oldest(const Program& program, const RunContext& context);
    Result<> complete_through(const Program& program, const RunContext& context, int node);

    Engine& engine_;
    std::size_t max_in_flight_;
    std::deque<PendingCollective> pending_;
};

/// The caller's thread is one of the pool's, so that a step begins and ends without a hand-over. A
/// thread without work waits for the oldest collective and so drives it; if another thread already
/// does, it sleeps.
class DagExecutor final : public Executor {
public:
    DagExecutor(Engine& engine, int threads, int max_in_flight);
    ~DagExecutor() override;
    Result<> run(Program& program, const RunContext& context) override;

private:
    void serve();
    void stop();
    bool can_issue() const;
    bool next_is_ready() const;
    bool is_issue_blocked() const;
    bool has_work() const;
    bool is_over() const;
    void start(Program& program, const RunContext& context);
    void run_next(std::unique_lock<std::mutex>& lock);
    Result<> next(std::unique_lock<std::mutex>& lock);
    Result<> issue(std::unique_lock<std::mutex>& lock);
    Result<> finish(std::unique_lock<std::mutex>& lock, int64_t timeout_ms);
    Result<> compute(std::unique_lock<std::mutex>& lock);
    void make_ready(int node);
    void done(int node);
    ProgramNode& node(int index) { return program_->nodes[static_cast<std::size_t>(index)]; }

    Engine& engine_;
    int max_in_flight_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false;
    bool caller_sleeps_ = false;

    // The state of the current run.
    Program* program_ = nullptr;
    const RunContext* context_ = nullptr;
    std::vector<int> waits_;  // by node: the number of unfinished predecessors
    std::priority_queue<int, std::vector<int>, std::greater<>> ready_;
    std::vector<int> order_;  // the collectives
    std::size_t next_collective_ = 0;
    std::vector<bool> may_issue_;            // by node
    std::deque<PendingCollective> pending_;  // issued, in that order; no thread waits for them yet
    bool issuing_ = false;
    bool finishing_ = false;  // a thread waits for a collective
    int in_flight_ = 0;
    int running_ = 0;
    std::size_t remaining_ = 0;
    Result<> outcome_;  // with the first cause

    std::vector<std::thread> threads_;
};

}  // namespace tutti::trainer
