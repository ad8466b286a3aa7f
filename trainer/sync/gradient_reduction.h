// The reduction of dense gradients, bucket by bucket.
#pragma once

#include <deque>
#include <vector>

#include "trainer/sync/task_table.h"

namespace tutti::trainer {

/// One allreduce a bucket, issued in the order of the buckets on every rank. Without tasks (one
/// replica, or LocalSGD) nothing is reduced.
class GradientReduction {
public:
    GradientReduction(std::deque<BufferGroup>& buckets, TaskTable& tasks)
        : buckets_(buckets), tasks_(tasks) {}

    /// Adds an allreduce for each bucket to the task table.
    void add_tasks();
    bool is_active() const { return !bucket_tasks_.empty(); }
    /// Puts each bucket's node after the last node from backward_begin on that writes one of its
    /// gradients, but never before an earlier bucket's: the order of the buckets depends on the
    /// declarations alone, not on the times when gradients are ready.
    void insert_nodes(Program& program, std::size_t backward_begin) const;
    /// Moves the buckets' nodes out of the program into one of their own, in the order of the
    /// buckets: for options.external_autograd, where a framework's backward pass writes the
    /// gradients.
    Program take_nodes(Program& program) const;
    /// Each bucket's gradients, as buffer numbers, of all devices.
    std::vector<std::vector<int>> members() const;
    /// Gives the tasks the buckets' addresses, once the buckets have memory. sums_made: the nodes
    /// of MicroSums fill a 16-bit bucket's float32 sums before its task begins; otherwise the task
    /// converts the gradients to float32 itself.
    void bind(bool sums_made);

private:
    void bind_sums(Task& task, const BufferGroup& bucket, bool sums_made);

    std::deque<BufferGroup>& buckets_;
    TaskTable& tasks_;
    std::vector<int> bucket_tasks_;  // by bucket
};

}  // namespace tutti::trainer
