#include "trainer/sync/gradient_reduction.h"

#include <algorithm>

namespace tutti::trainer {

void GradientReduction::add_tasks() {
    for (const BufferGroup& bucket : buckets_) {
        Task task{.name = "gradients, " + bucket.name, .dtype = bucket.dtype};
        task.is_bucket = true;
        bucket_tasks_.push_back(tasks_.add(std::move(task)));
    }
}

void GradientReduction::insert_nodes(Program& program, std::size_t backward_begin) const {
    std::vector<ProgramNode> nodes;
    std::vector<std::size_t> ready(buckets_.size(), backward_begin);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const std::vector<int> members = buckets_[b].all_members();
        for (std::size_t n = backward_begin; n < program.nodes.size(); ++n)
            for (int w : program.nodes[n].writes)
                if (std::ranges::find(members, w) != members.end()) ready[b] = n + 1;
        if (b > 0) ready[b] = std::max(ready[b], ready[b - 1]);
    }
    std::size_t next = 0;
    for (std::size_t n = 0; n <= program.nodes.size(); ++n) {
        for (; next < buckets_.size() && ready[next] == n; ++next) {
            ProgramNode node =
                group_node(buckets_[next], "gradients, " + buckets_[next].name, none);
            node.task = bucket_tasks_[next];
            nodes.push_back(std::move(node));
        }
        if (n < program.nodes.size()) nodes.push_back(std::move(program.nodes[n]));
    }
    program.nodes = std::move(nodes);
}

Program GradientReduction::take_nodes(Program& program) const {
    // tutti_trainer_begin sets the gradients to zero, before the framework writes them.
    Program taken;
    std::erase_if(program.nodes, [&](ProgramNode& node) {
        if (node.task == none || std::ranges::find(bucket_tasks_, node.task) == bucket_tasks_.end())
            return false;
        node.zero.clear();
        taken.nodes.push_back(std::move(node));
        return true;
    });
    return taken;
}

std::vector<std::vector<int>> GradientReduction::members() const {
    std::vector<std::vector<int>> list;
    for (const BufferGroup& bucket : buckets_) list.push_back(bucket.all_members());
    return list;
}

void GradientReduction::bind(bool sums_made) {
    for (std::size_t b = 0; b < bucket_tasks_.size(); ++b) {
        tasks_.bind_group(bucket_tasks_[b], buckets_[b], buckets_[b].pointers());
        if (!buckets_[b].wide.empty())
            bind_sums(tasks_.at(bucket_tasks_[b]), buckets_[b], sums_made);
    }
}

// The allreduce runs on the bucket's float32 sums (BufferGroup::wide). Collectives::end rounds the
// sum over all replicas and micro-batches into the bucket, once.
void GradientReduction::bind_sums(Task& task, const BufferGroup& bucket, bool sums_made) {
    task.narrow = task.in;
    task.narrow_dtype = bucket.dtype;
    task.dtype = bucket.sums_dtype();
    task.widens = !sums_made;
    for (std::size_t d = 0; d < task.in.size(); ++d) task.in[d] = task.out[d] = bucket.sums(d);
}

}  // namespace tutti::trainer
