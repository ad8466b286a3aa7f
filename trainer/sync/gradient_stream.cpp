#include "trainer/sync/gradient_stream.h"

namespace tutti::training {

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

void GradientStream::begin(const RunContext& context) {
    const std::lock_guard lock(mutex_);
    context_ = context;
    told_.assign(bucket_of_.size(), false);
    missing_.clear();
    for (const auto& members : members_) missing_.push_back(members.size());
    next_ = 0;
    under_way_ = true;
}

void GradientStream::ready(int gradient, const std::string& name) {
    std::unique_lock lock(mutex_);
    const auto at = static_cast<std::size_t>(gradient);
    if (told_[at]) invalid("the gradient of '{}' was ready before in this step", name);
    told_[at] = true;
    if (bucket_of_[at] == none) return;  // a shard
    --missing_[static_cast<std::size_t>(bucket_of_[at])];
    issue_what_is_ready(lock);
}

// One thread issues at a time; another's bucket is found by the one that is at it.
void GradientStream::issue_what_is_ready(std::unique_lock<std::mutex>& lock) {
    if (issuing_) return;
    issuing_ = true;
    try {
        while (next_ < program_.nodes.size() && missing_[next_] == 0) {
            const std::size_t bucket = next_++;
            lock.unlock();
            while (pending_.size() >= max_in_flight_) complete_oldest();
            tutti_request* request = engine_.begin(program_.nodes[bucket], context_);
            if (request)
                pending_.push_back({bucket, request});
            else
                engine_.end(program_.nodes[bucket], context_);
            lock.lock();
        }
    } catch (...) {
        drop(std::current_exception());
        if (!lock.owns_lock()) lock.lock();
        issuing_ = false;
        under_way_ = false;
        throw;
    }
    issuing_ = false;
}

void GradientStream::complete_oldest() {
    Pending oldest = pending_.front();
    pending_.pop_front();
    const Node& node = program_.nodes[oldest.bucket];
    engine_.wait(node, &oldest.request);
    engine_.end(node, context_);
}

void GradientStream::drop(const std::exception_ptr& cause) noexcept {
    engine_.give_up(cause);
    for (Pending& p : pending_) tutti_wait(&p.request, -1);
    pending_.clear();
}

void GradientStream::finish() {
    std::unique_lock lock(mutex_);
    std::fill(missing_.begin(), missing_.end(), 0);
    issue_what_is_ready(lock);
    under_way_ = false;
    lock.unlock();
    try {
        while (!pending_.empty()) complete_oldest();
    } catch (...) {
        drop(std::current_exception());
        throw;
    }
}

}  // namespace tutti::training
