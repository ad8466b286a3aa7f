// From declarations to programs: the order of a step, its collectives, and where its buffers lie.
#include <algorithm>

#include "trainer/plan/backward.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;

namespace {

bool floating(tutti_dtype dtype) {
    return dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT8_E5M2;
}

std::vector<int> all_members(const Group& group) {
    std::vector<int> list;
    for (const auto& members : group.members)
        list.insert(list.end(), members.begin(), members.end());
    return list;
}

// What the layer adds itself, devices add: 16-bit types in float32.
Result<> need_addable(const Group& group, const std::vector<Device*>& devices, const char* option) {
    if (group.dtype == TUTTI_FLOAT32 || group.dtype == TUTTI_FLOAT64) return {};
    if (is_narrow(group.dtype)) {
        if (std::ranges::all_of(devices, [](const Device* d) { return d->can_convert(); }))
            return {};
        return invalid("{} with parameters of {}: a device has no functions.convert", option,
                       tutti_dtype_name(group.dtype));
    }
    return invalid("{} is for parameters of 16 bits and more; there are some of {}", option,
                   tutti_dtype_name(group.dtype));
}

Node node_on(const Group& group, const std::string& name, int device) {
    Node node{.name = name, .device = device};
    if (device == none)
        node.writes = all_members(group);
    else
        node.writes = group.members[static_cast<std::size_t>(device)];
    node.reads = node.writes;
    return node;
}

}  // namespace

int tutti_trainer::add_task(Task task) {
    task.stream = next_stream_++ % settings_.rings;
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
}

// A collective that the builders declared, or the reverse of one.
void tutti_trainer::joined(Node& node, const std::vector<Item>& parts) {
    const CollectiveCall& call = *parts.front().collective;
    const Buffer& in = recorder_.buffer(parts.front().node.reads.front());
    node.task = add_task({.name = node.name,
                          .kind = call.kind,
                          .op = call.op,
                          .root = call.root,
                          .dtype = in.dtype,
                          .count = in.count()});
    Binding binding{.task = node.task, .in = {}, .out = {}};
    for (const Item& part : parts) {
        binding.in.push_back(part.node.reads.front());
        binding.out.push_back(part.node.writes.front());
    }
    bindings_.push_back(std::move(binding));
}

Result<Program> tutti_trainer::compute_program() {
    const auto join = [this](Node& node, const auto& parts) { joined(node, parts); };
    Program program;
    std::vector<Items> lists;
    for (int d = 0; d < devices(); ++d) {
        Items items = items_of(recorder_, d, Phase::input, devices_);
        Items forward = items_of(recorder_, d, Phase::forward, devices_);
        std::ranges::move(forward, std::back_inserter(items));
        lists.push_back(std::move(items));
    }
    TRAINER_TRY(merge(program, std::move(lists), recorder_, join));
    backward_begin_ = program.nodes.size();
    if (!trains_ || settings_.external) return program;
    lists.clear();
    for (int d = 0; d < devices(); ++d) {
        TRAINER_ASSIGN(Items items, backward_items(recorder_, d, comm_.rank() * devices() + d,
                                                   replicas(), devices_));
        lists.push_back(std::move(items));
    }
    TRAINER_TRY(merge(program, std::move(lists), recorder_, join));
    return program;
}

int tutti_trainer::bucket_task(const Group& bucket) {
    Task task{.name = "gradients, " + bucket.name, .dtype = bucket.dtype};
    task.is_bucket = true;
    return add_task(std::move(task));
}

// Each bucket as soon as its last gradient is written, but never before an earlier one: their order
// is one of the declarations', whatever is ready when.
void tutti_trainer::insert_buckets(Program& program, std::size_t backward_begin) {
    std::vector<Node> nodes;
    std::vector<std::size_t> ready(buckets_.size(), backward_begin);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const std::vector<int> members = all_members(buckets_[b]);
        for (std::size_t n = backward_begin; n < program.nodes.size(); ++n)
            for (int w : program.nodes[n].writes)
                if (std::ranges::find(members, w) != members.end()) ready[b] = n + 1;
        if (b > 0) ready[b] = std::max(ready[b], ready[b - 1]);
    }
    std::size_t next = 0;
    for (std::size_t n = 0; n <= program.nodes.size(); ++n) {
        for (; next < buckets_.size() && ready[next] == n; ++next) {
            Node node = node_on(buckets_[next], "gradients, " + buckets_[next].name, none);
            node.task = bucket_tasks_[next];
            nodes.push_back(std::move(node));
        }
        if (n < program.nodes.size()) nodes.push_back(std::move(program.nodes[n]));
    }
    program.nodes = std::move(nodes);
}

void tutti_trainer::append_fixed_sums(Program& program, bool last) {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
        for (int d = 0; d < devices(); ++d) {
            Node node = node_on(buckets_[b], "micro-batches, " + buckets_[b].name, d);
            const auto at = static_cast<std::size_t>(d);
            node.own = [this, b, at, last](const RunContext& context) -> Result<> {
                if (!last) return micro_sums_->put_away(b, at, context.micro);
                TRAINER_TRY(micro_sums_->take_up(b, at, context.micro));
                return bucket_tasks_.empty() ? micro_sums_->round(b, at) : Result<>();
            };
            program.nodes.push_back(std::move(node));
        }
}

// Also on one replica alone: the update finds each row once.
Result<> tutti_trainer::append_sparse_sums(Program& program) {
    for (int b : recorder_.of_kind(0, TUTTI_PARAMETER)) {
        if (!recorder_.buffer(b).sparse()) continue;
        const std::string& name = recorder_.buffer(b).name;
        if (!synchronous())
            return invalid("'{}' is sparse; options.local_steps is for dense parameters", name);
        Node node{.name = "sparse gradient of " + name};
        std::vector<SparseEntries> entries;
        for (int d = 0; d < devices(); ++d) {
            const Buffer& table = recorder_.buffer(recorder_.find(d, name));
            entries.push_back({table.gradient, table.sparse_rows, table.sparse_count});
            node.reads.insert(node.reads.end(),
                              {table.gradient, table.sparse_rows, table.sparse_count});
        }
        node.writes = node.reads;
        node.task = add_task({.name = node.name, .whole_of = b});
        tasks_.back().whole = [this, entries = std::move(entries)] {
            return sum_sparse(recorder_, devices_, comm_, entries);
        };
        program.nodes.push_back(std::move(node));
    }
    return {};
}

void tutti_trainer::append_computed_sync(Program& program) {
    for (Group& group : computed_) {
        const bool mean = settings_.computed_mean && floating(group.dtype);
        Task task{.name = group.name,
                  .kind = mean ? TUTTI_COLLECTIVE_ALLREDUCE : TUTTI_COLLECTIVE_BROADCAST,
                  .op = TUTTI_AVG,
                  .dtype = group.dtype};
        task.every = settings_.computed_every;
        Node node = node_on(group, group.name, none);
        node.task = add_task(std::move(task));
        group_tasks_.push_back({&group, node.task});
        program.nodes.push_back(std::move(node));
    }
}

Result<> tutti_trainer::append_update(Program& program) {
    std::vector<Items> lists;
    for (int d = 0; d < devices(); ++d)
        lists.push_back(items_of(recorder_, d, Phase::update, devices_));
    TRAINER_TRY(merge(program, std::move(lists), recorder_,
                      [this](Node& node, const auto& parts) { joined(node, parts); }));
    if (synchronous()) return {};
    for (std::size_t g = 0; g < parameters_.size(); ++g) {
        const Group& group = parameters_[g];
        const int every = settings_.local_steps;
        const auto on_each = [&](const std::string& what,
                                 Result<> (Averaging::*act)(std::size_t, std::size_t)) {
            for (int d = 0; d < devices(); ++d) {
                Node node = node_on(group, what + group.name, d);
                const auto at = static_cast<std::size_t>(d);
                node.own = [this, g, at, every, act](const RunContext& context) {
                    return context.is_turn(every) ? ((*averaging_).*act)(g, at) : Result<>();
                };
                program.nodes.push_back(std::move(node));
            }
        };
        on_each("delta of ", &Averaging::compute_delta);
        Node average = node_on(group, "average of " + group.name, none);
        average.task = add_task({.name = average.name,
                                 .op = TUTTI_AVG,
                                 .dtype = sum_dtype(group.dtype),
                                 .every = every});
        program.nodes.push_back(std::move(average));
        on_each("step of ", &Averaging::apply_delta);
    }
    return {};
}

// A parameter's, but one that a fixed order puts away after each micro-batch, and one that nothing
// touches before the last.
bool tutti_trainer::adds_up(int gradient) const {
    const int of = recorder_.buffer(gradient).gradient_of;
    if (of == none || recorder_.buffer(of).kind != TUTTI_PARAMETER) return false;
    if (settings_.fixed_order && recorder_.buffer(of).bucketed()) return false;
    return std::ranges::any_of(micro_.nodes, [gradient](const Node& node) {
        return std::ranges::find(node.reads, gradient) != node.reads.end() ||
               std::ranges::find(node.writes, gradient) != node.writes.end();
    });
}

// Of a list of rows, how many it has: what lies behind them is nothing.
bool tutti_trainer::begins_at_zero(int b) const {
    const Buffer& buffer = recorder_.buffer(b);
    if (buffer.kind != TUTTI_GRADIENT) return false;
    if (buffer.gradient_of == none || !recorder_.buffer(buffer.gradient_of).sparse()) return true;
    return b == recorder_.buffer(buffer.gradient_of).sparse_count;
}

// A gradient begins at zero, just before whoever touches it first.
void tutti_trainer::mark_zeroes(Program& program) const {
    std::vector<bool> seen(recorder_.buffers().size());
    for (Node& node : program.nodes) {
        const bool seeds = node.own && node.reads.empty();
        for (const auto* list : {&node.reads, &node.writes})
            for (int b : *list) {
                const auto at = static_cast<std::size_t>(b);
                if (!begins_at_zero(b) || seen[at]) continue;
                seen[at] = true;
                if (!seeds) node.zero.push_back(b);
                if (!seeds && adds_up(b)) node.adds_up.push_back(b);
            }
    }
}

Result<> tutti_trainer::assemble() {
    TRAINER_ASSIGN(Program compute, compute_program());
    for (auto kind : {TUTTI_PARAMETER, TUTTI_COMPUTED, TUTTI_STATE})
        for (Group& group : make_groups(recorder_, kind))
            (kind == TUTTI_PARAMETER  ? parameters_
             : kind == TUTTI_COMPUTED ? computed_
                                      : state_)
                .push_back(std::move(group));
    if (trains_)
        for (Group& bucket :
             make_buckets(recorder_, {settings_.bucket_bytes, settings_.first_bucket_bytes}))
            buckets_.push_back(std::move(bucket));
    if (trains_)
        for (const Group& group : parameters_) {
            if (settings_.fixed_order)
                TRAINER_TRY(need_addable(group, devices_, "options.fixed_order"));
            if (!synchronous()) TRAINER_TRY(need_addable(group, devices_, "options.local_steps"));
        }
    const bool several = settings_.micro_batches > 1;
    const bool reduces = trains_ && replicas() > 1;
    if (reduces && synchronous())
        for (const Group& bucket : buckets_) bucket_tasks_.push_back(bucket_task(bucket));
    if (several) micro_ = compute;
    last_ = std::move(compute);
    if (trains_ && several && settings_.fixed_order) {
        append_fixed_sums(micro_, false);
        append_fixed_sums(last_, true);
    }
    if (!bucket_tasks_.empty()) insert_buckets(last_, backward_begin_);
    if (trains_) TRAINER_TRY(append_sparse_sums(last_));
    if (reduces) append_computed_sync(last_);
    if (trains_) TRAINER_TRY(append_update(last_));
    mark_zeroes(micro_);
    mark_zeroes(last_);
    TRAINER_TRY(place_all());
    TRAINER_TRY(bind_tasks());
    find_dependencies(micro_, recorder_);
    find_dependencies(last_, recorder_);
    if (settings_.dag)
        executor_ =
            std::make_unique<DagExecutor>(engine_, settings_.threads, settings_.max_in_flight);
    else
        executor_ = std::make_unique<SerialExecutor>(engine_, settings_.max_in_flight);
    if (settings_.check) engine_.check_declarations();
    return {};
}
