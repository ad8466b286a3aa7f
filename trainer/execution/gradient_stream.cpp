#include "trainer/execution/gradient_stream.h"

#include <algorithm>

#include "trainer/base/boundary.h"

namespace tutti::trainer {

GradientStream::GradientStream(Engine& engine, Program buckets,
                               std::vector<std::vector<int>> members, std::size_t all_buffers,
                               int max_in_flight)
    : engine_(engine),
      program_(std::move(buckets)),
      members_(std::move(members)),
      max_in_flight_(static_cast<std::size_t>(max_in_flight)),
      bucket_of_(all_buffers, none) {
    for (std::size_t b = 0; b < members_.size(); ++b)
        for (int gradient : members_[b])
            bucket_of_[static_cast<std::size_t>(gradient)] = static_cast<int>(b);
}

GradientStream::~GradientStream() {
    if (pending_.empty()) return;
    Result<> destroyed = fail(TUTTI_ERR_ABORTED, "the trainer was destroyed during a step");
    abort(destroyed);
}

void GradientStream::begin(const RunContext& context) {
    const std::lock_guard lock(mutex_);
    context_ = context;
    ready_.assign(bucket_of_.size(), false);
    missing_.clear();
    for (const auto& members : members_) missing_.push_back(members.size());
    next_ = 0;
    outcome_ = {};
    in_step_ = true;
}

Result<> GradientStream::ready(int gradient, const std::string& name) {
    std::unique_lock lock(mutex_);
    if (!outcome_) return outcome_;
    const auto at = static_cast<std::size_t>(gradient);
    if (ready_[at])
        return invalid("the gradient of '{}' was already reported ready in this step", name)
            .advice("call tutti_trainer_grad_ready once for each parameter and step");
    ready_[at] = true;
    if (bucket_of_[at] == none) return {};  // a shard
    --missing_[static_cast<std::size_t>(bucket_of_[at])];
    return issue_ready(lock);
}

// One thread issues at a time. It repeats until no bucket is complete, so that other threads leave
// their buckets to it.
Result<> GradientStream::issue_ready(std::unique_lock<std::mutex>& lock) {
    if (issuing_) return {};
    issuing_ = true;
    Result<> done;
    while (done && next_ < program_.nodes.size() && missing_[next_] == 0) {
        const std::size_t bucket = next_++;
        lock.unlock();
        done = contain([&] { return issue(bucket); });
        if (!done) abort(done);
        lock.lock();
    }
    issuing_ = false;
    if (!done) outcome_ = done;
    return done;
}

Result<> GradientStream::issue(std::size_t bucket) {
    while (pending_.size() >= max_in_flight_) TRAINER_TRY(complete_oldest());
    TRAINER_ASSIGN(tutti_request* const request, engine_.begin(program_.nodes[bucket], context_));
    if (!request) return engine_.end(program_.nodes[bucket], context_);
    pending_.push_back({static_cast<int>(bucket), request});
    return {};
}

Result<> GradientStream::complete_oldest() {
    PendingCollective oldest = pending_.front();
    pending_.pop_front();
    const ProgramNode& node = program_.nodes[static_cast<std::size_t>(oldest.node)];
    TRAINER_TRY(engine_.wait(node, &oldest.request));
    return engine_.end(node, context_);
}

/// Aborts after a failure and waits for the collectives in flight. If one of them has a mismatch,
/// that replaces the failure.
void GradientStream::abort(Result<>& failure) {
    engine_.abort_after(failure.error());
    for (PendingCollective& p : pending_) {
        const auto over =
            engine_.wait(program_.nodes[static_cast<std::size_t>(p.node)], &p.request);
        if (!over) prefer_mismatch(failure, over.error());
    }
    pending_.clear();
}

Result<> GradientStream::finish() {
    std::unique_lock lock(mutex_);
    std::fill(missing_.begin(), missing_.end(), 0);
    Result<> done = outcome_;
    if (done) done = issue_ready(lock);
    in_step_ = false;
    lock.unlock();
    if (!done) return done;
    while (done && !pending_.empty()) done = complete_oldest();
    if (!done) abort(done);
    return done;
}

}  // namespace tutti::trainer
