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

    void add_tasks();
    bool is_active() const { return !bucket_tasks_.empty(); }
    /// Puts each bucket's node after the last node from backward_begin on that writes one of its
    /// gradients, but never before an earlier bucket's: the order of the buckets depends on the
    /// declarations alone, not on what is ready when.
    void insert_nodes(Program& program, std::size_t backward_begin) const;
    /// The buckets' nodes alone, taken out of the program, and each bucket's gradients: for a
    /// framework whose own backward pass writes them.
    Program take_nodes(Program& program) const;
    std::vector<std::vector<int>> members() const;
    /// sums_made: the bucket's sums are there when its task begins; else the task makes them of the
    /// gradients.
    void bind(bool sums_made);

private:
    void bind_sums(Task& task, const BufferGroup& bucket, bool sums_made);

    std::deque<BufferGroup>& buckets_;
    TaskTable& tasks_;
    std::vector<int> bucket_tasks_;  // by bucket
};

}  // namespace tutti::trainer
