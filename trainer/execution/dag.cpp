#include "trainer/execution/executors.h"

namespace tutti::training {

DagExecutor::DagExecutor(Engine& engine, int threads, int max_in_flight)
    : engine_(engine), max_in_flight_(max_in_flight) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

DagExecutor::~DagExecutor() {
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
    requests_.assign(count, nullptr);
    completions_.assign(count, {});
    order_.clear();
    next_collective_ = 0;
    remaining_ = count;
    failure_ = nullptr;
    for (int n = 0; n < static_cast<int>(count); ++n) {
        waits_[static_cast<std::size_t>(n)] = static_cast<int>(node(n).before.size());
        if (node(n).task != none) order_.push_back(n);
    }
    for (int n = 0; n < static_cast<int>(count); ++n)
        if (node(n).before.empty()) make_ready(n);
}

void DagExecutor::run(Program& program, const RunContext& context) {
    std::unique_lock lock(mutex_);
    start(program, context);
    changed_.notify_all();
    over_.wait(lock, [this] { return is_over(); });
    program_ = nullptr;
    ready_ = {};
    completed_.clear();
    if (failure_) std::rethrow_exception(failure_);
}

bool DagExecutor::is_over() const {
    if (remaining_ == 0) return running_ == 0;
    return failure_ && running_ == 0 && in_flight_ == 0;
}

// In the program's order on every rank: whoever is first here is first everywhere.
bool DagExecutor::can_issue() const {
    return !issuing_ && next_collective_ < order_.size() && in_flight_ < max_in_flight_ &&
           may_issue_[static_cast<std::size_t>(order_[next_collective_])];
}

void DagExecutor::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] {
            if (stop_) return true;
            if (!program_) return false;
            return !completed_.empty() || (!failure_ && (can_issue() || !ready_.empty()));
        });
        if (stop_) return;
        ++running_;
        take_one(lock);
        --running_;
        if (is_over()) over_.notify_all();
    }
}

void DagExecutor::take_one(std::unique_lock<std::mutex>& lock) {
    try {
        if (!completed_.empty())
            finish(lock);
        else if (can_issue())
            issue(lock);
        else
            compute(lock);
    } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        // First the cause: what the others see of the end is only its consequence.
        const std::exception_ptr cause = std::current_exception();
        if (!failure_) failure_ = cause;
        lock.unlock();
        engine_.give_up(cause);  // may call on_complete, which takes the lock
        lock.lock();
        changed_.notify_all();
    }
}

void DagExecutor::compute(std::unique_lock<std::mutex>& lock) {
    const int n = ready_.top();
    ready_.pop();
    lock.unlock();
    engine_.run(node(n), *context_);
    lock.lock();
    done(n);
}

void DagExecutor::issue(std::unique_lock<std::mutex>& lock) {
    const int n = order_[next_collective_++];
    const auto at = static_cast<std::size_t>(n);
    issuing_ = true;
    ++in_flight_;
    lock.unlock();
    tutti_request* request = nullptr;
    try {
        request = engine_.begin(node(n), *context_);
        if (!request) engine_.end(node(n), *context_);
    } catch (...) {
        lock.lock();
        issuing_ = false;
        --in_flight_;
        throw;
    }
    lock.lock();
    issuing_ = false;
    if (!request) {
        --in_flight_;
        done(n);
        return;
    }
    requests_[at] = request;
    completions_[at] = {this, n};
    if (can_issue()) changed_.notify_one();
    lock.unlock();  // the callback may come at once, and takes the lock
    if (tutti_request_on_complete(request, on_complete, &completions_[at]) != TUTTI_OK)
        on_complete(TUTTI_OK, &completions_[at]);  // then finish() waits for it
    lock.lock();
}

void DagExecutor::on_complete(tutti_status, void* user) {
    const auto* completion = static_cast<const Completion*>(user);
    DagExecutor& self = *completion->executor;
    const std::lock_guard lock(self.mutex_);
    self.completed_.push_back(completion->node);
    self.changed_.notify_one();
}

void DagExecutor::finish(std::unique_lock<std::mutex>& lock) {
    const int n = completed_.front();
    completed_.pop_front();
    tutti_request* request = requests_[static_cast<std::size_t>(n)];
    const bool failed = failure_ != nullptr;
    lock.unlock();
    try {
        engine_.wait(node(n), request);
        if (!failed) engine_.end(node(n), *context_);
    } catch (...) {
        lock.lock();
        --in_flight_;
        throw;
    }
    lock.lock();
    --in_flight_;
    if (!failed) done(n);
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
    // One of them is for this thread, which looks again before it sleeps, and issues what may be
    // issued before it computes: that is too short to wake another for.
    for (std::size_t more = ready_.size() - before; more > 1; --more) changed_.notify_one();
}

}  // namespace tutti::training
