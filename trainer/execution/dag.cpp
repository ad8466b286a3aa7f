#include "trainer/base/boundary.h"
#include "trainer/execution/executors.h"

namespace tutti::trainer {
namespace {

constexpr int64_t poll = 0, until_done = -1;  // timeouts

}  // namespace

DagExecutor::DagExecutor(Engine& engine, int threads, int max_in_flight)
    : engine_(engine), max_in_flight_(max_in_flight) {
    try {
        for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
    } catch (...) {
        stop();  // the system has no more threads: end the threads created so far
        throw;
    }
}

DagExecutor::~DagExecutor() {
    stop();
}

void DagExecutor::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void DagExecutor::start(Program& program, const RunContext& context) {
    const std::size_t count = program.nodes.size();
    program_ = &program;
    context_ = &context;
    waits_.assign(count, 0);
    may_issue_.assign(count, false);
    order_.clear();
    next_collective_ = 0;
    remaining_ = count;
    outcome_ = {};
    for (int n = 0; n < static_cast<int>(count); ++n) {
        waits_[static_cast<std::size_t>(n)] = static_cast<int>(node(n).before.size());
        if (node(n).task != none) order_.push_back(n);
    }
    for (int n = 0; n < static_cast<int>(count); ++n)
        if (node(n).before.empty()) make_ready(n);
}

Result<> DagExecutor::run(Program& program, const RunContext& context) {
    std::unique_lock lock(mutex_);
    start(program, context);
    for (std::size_t more = ready_.size(); more > 1; --more) changed_.notify_one();
    while (!is_over()) {
        if (has_work()) {
            run_next(lock);
            continue;
        }
        caller_sleeps_ = true;
        changed_.wait(lock, [this] { return is_over() || has_work(); });
        caller_sleeps_ = false;
    }
    program_ = nullptr;
    ready_ = {};
    return std::move(outcome_);
}

// After a failure the running nodes and the issued collectives still end.
bool DagExecutor::is_over() const {
    if (running_ > 0) return false;
    return remaining_ == 0 || (!outcome_ && in_flight_ == 0);
}

// Every rank issues in the program's order.
bool DagExecutor::can_issue() const {
    return in_flight_ < max_in_flight_ && next_is_ready();
}

bool DagExecutor::next_is_ready() const {
    return !issuing_ && next_collective_ < order_.size() &&
           may_issue_[static_cast<std::size_t>(order_[next_collective_])];
}

// The next collective is ready, but max_in_flight are in flight. A thread then polls for the end of
// the oldest before it computes a ready node; it waits only if no node is ready.
bool DagExecutor::is_issue_blocked() const {
    return in_flight_ >= max_in_flight_ && next_is_ready() && !finishing_ && !pending_.empty();
}

bool DagExecutor::has_work() const {
    if (!program_) return false;
    if (outcome_ && (can_issue() || !ready_.empty())) return true;
    return !finishing_ && !pending_.empty();
}

void DagExecutor::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || has_work(); });
        if (stop_) return;
        run_next(lock);
        if (caller_sleeps_ && is_over()) changed_.notify_all();
    }
}

void DagExecutor::run_next(std::unique_lock<std::mutex>& lock) {
    ++running_;
    Result<> result = contain([&] { return next(lock); });
    if (!lock.owns_lock()) lock.lock();  // an operation's code has thrown
    if (!result) {
        const Error cause = std::move(result).error();
        // The first failure is the cause; later ones are consequences of the abort.
        if (outcome_)
            outcome_ = tl::unexpected<Error>(cause);
        else
            prefer_mismatch(outcome_, cause);
        lock.unlock();
        engine_.abort_after(cause);
        lock.lock();
    }
    --running_;
}

Result<> DagExecutor::next(std::unique_lock<std::mutex>& lock) {
    if (outcome_ && is_issue_blocked()) TRAINER_TRY(finish(lock, poll));
    if (outcome_ && can_issue()) return issue(lock);
    if (outcome_ && !ready_.empty()) return compute(lock);
    if (!finishing_ && !pending_.empty()) return finish(lock, until_done);
    return {};
}

Result<> DagExecutor::compute(std::unique_lock<std::mutex>& lock) {
    const int n = ready_.top();
    ready_.pop();
    lock.unlock();
    TRAINER_TRY(engine_.run(node(n), *context_));
    lock.lock();
    done(n);
    return {};
}

Result<> DagExecutor::issue(std::unique_lock<std::mutex>& lock) {
    const int n = order_[next_collective_++];
    issuing_ = true;
    ++in_flight_;
    lock.unlock();
    const Result<tutti_request*> request = contain([&]() -> Result<tutti_request*> {
        TRAINER_ASSIGN(tutti_request* const begun, engine_.begin(node(n), *context_));
        if (!begun) TRAINER_TRY(engine_.end(node(n), *context_));
        return begun;
    });
    lock.lock();
    issuing_ = false;
    if (request && *request) {
        pending_.push_back({n, *request});
        return {};
    }
    --in_flight_;
    TRAINER_TRY(request);
    done(n);
    return {};
}

// Collectives nearly always end in the order of issue. A wait for the oldest drives all of them.
Result<> DagExecutor::finish(std::unique_lock<std::mutex>& lock, int64_t timeout_ms) {
    PendingCollective oldest = pending_.front();
    pending_.pop_front();
    const bool failed = !outcome_;
    finishing_ = true;
    lock.unlock();
    const Result<bool> is_done = contain([&]() -> Result<bool> {
        TRAINER_ASSIGN(const bool over,
                       engine_.wait(node(oldest.node), &oldest.request, timeout_ms));
        if (over && !failed) TRAINER_TRY(engine_.end(node(oldest.node), *context_));
        return over;
    });
    lock.lock();
    finishing_ = false;
    if (is_done && !*is_done) {
        pending_.push_front(oldest);
        return {};
    }
    --in_flight_;
    TRAINER_TRY(is_done);
    if (!failed) done(oldest.node);
    return {};
}

void DagExecutor::make_ready(int n) {
    if (node(n).task == none)
        ready_.push(n);
    else
        may_issue_[static_cast<std::size_t>(n)] = true;
}

void DagExecutor::done(int n) {
    --remaining_;
    const std::size_t before = ready_.size();
    for (int next : node(n).after)
        if (--waits_[static_cast<std::size_t>(next)] == 0) make_ready(next);
    // This thread takes one of the nodes itself, after it has issued collectives: issuing is too
    // short to wake another thread for it.
    for (std::size_t more = ready_.size() - before; more > 1; --more) changed_.notify_one();
}

}  // namespace tutti::trainer
