#include "plan/planner.h"

#include <atomic>
#include <cstring>

#include "collectives/catalog.h"
#include "plan/survey.h"
#include "record/recorder.h"

namespace tutti {
namespace {

// Results this large leave the last-level cache before they are read again.
constexpr std::size_t stream_bytes = std::size_t{64} << 20;
// If ranks know only their own blocks' lengths, all assume this size for the whole call, so that
// they choose alike.
constexpr std::size_t unknown_bytes = std::size_t{1} << 40;

std::atomic<uint64_t> last_serial{0};

}  // namespace

Planner::Planner(Endpoint& endpoint, ChannelTable& channels, const PlannerScope& place)
    : endpoint_(endpoint),
      config_(endpoint.config()),
      channels_(channels),
      place_(place),
      selection_input_(survey(endpoint, place.size, place.one_host)),
      memory_(static_cast<std::size_t>(config_.nrings)),
      serial_(++last_serial) {}

void Planner::use(Endpoint::Intrinsics intrinsics) {
    intrinsics_ = std::move(intrinsics);
    if (!intrinsics_.group) return;
    selection_input_.intrinsic = intrinsics_.name;
    selection_input_.intrinsic_bytes = intrinsics_.group->most_bytes();
    selection_input_.intrinsic_sends = intrinsics_.group->sends();
}

void Planner::use(const Hosts& hosts) {
    hosts_ = &hosts;
    selection_input_.hosts = hosts.shape();
}

void Planner::use(const Constants& constants) {
    selection_input_.constants = constants;
    endpoint_.keep_fitted(selection_input_.wire, constants);
}

void Planner::reset_intrinsics() {
    if (intrinsics_.group) intrinsics_.group->reset();
}

Error Planner::annotate(const Error& error, const Call& call) const {
    const auto name = fmt::format("{}{}{}", collective_name(call.collective),
                                  call.uneven ? "v" : "", call.inputs > 0 ? "_multi" : "");
    return on_rank(place_.rank, wrap(error, name).value());
}

Result<> Planner::check(const Call& call, int stream) const {
    auto checked = check_arguments(call, stream);
    if (!checked) return tl::unexpected(annotate(checked.error(), call));
    return {};
}

Result<> Planner::check_arguments(const Call& call, int stream) const {
    const auto dtype = static_cast<int32_t>(call.dtype);
    if (dtype < 0 || dtype >= dtype_count)
        return fail(Code::invalid, "unknown dtype {}", dtype)
            .advice("give a dtype from 0 to {} (tutti_dtype_name names them)", dtype_count - 1);
    TUTTI_TRY(reduction(call));
    if (call.root < 0 || call.root >= place_.size)
        return fail(Code::invalid, "root {} is out of range", call.root)
            .advice("give a rank from 0 to {}", place_.size - 1);
    TUTTI_TRY(check_lengths(call, place_.size));
    if (stream >= config_.nrings)
        return fail(Code::invalid, "ring {} is out of range", stream)
            .advice("set opts.stream from 0 to {}, or raise TUTTI_NRINGS on every rank",
                    config_.nrings - 1);
    return {};
}

// A collective that reduces nothing moves bytes.
Result<Reduction> Planner::reduction(const Call& call) const {
    if (traits_of(call.collective).reduces) return reduction_of(call, serial_);
    Reduction r;
    r.reducer = Reducer::mover(dtype_bytes(call.dtype));
    return r;
}

Result<Op> Planner::make_premul_sum(const void* scalar, Dtype dtype) {
    UserOperator op;
    op.kind = UserOperator::Kind::premul_sum;
    op.owner = serial_;
    op.scalar_dtype = dtype;
    if (dtype_bytes(dtype) == 0)
        return fail(Code::invalid, "tutti_op_create_premul_sum: unknown dtype {}",
                    static_cast<int32_t>(dtype))
            .advice("give a dtype from 0 to {} (tutti_dtype_name names them)", dtype_count - 1);
    std::memcpy(op.scalar.data(), scalar, dtype_bytes(dtype));
    op.number = ++premul_sums_;
    return add_operator(op);
}

Question Planner::question(const Call& call) const {
    Question q;
    q.collective = call.collective;
    q.bytes = call.uneven && blocks_of(call).tag_by_block ? unknown_bytes : bytes_of(call);
    q.uneven = call.uneven;
    if (const auto r = reduction(call)) {
        q.ordered = r->ordered;
        if (r->prepared)
            q.bytes = total_elements(call, place_.size) * r->raw_bytes();
        else
            q.widening = r->reducer.widening();
    }
    q.wanted = call.algorithm;
    q.preferred = config_.algo;
    return q;
}

Result<Choice> Planner::choose(const Call& call) const {
    return select(question(call), selection_input_);
}

Result<Choice> Planner::choose_on_host(const Call& call) const {
    auto chosen = choose(call);
    if (!chosen) return tl::unexpected(annotate(chosen.error(), call));
    return chosen;
}

std::vector<Choice> Planner::candidates(const Call& call) const {
    return tutti::candidates(question(call), selection_input_);
}

Result<double> Planner::predict_us(const Call& call) const {
    TUTTI_ASSIGN(Choice choice, choose_on_host(call));
    // The ranks choose for a size that all of them assume; the known blocks tell more of the time.
    if (call.uneven && blocks_of(call).tag_by_block) {
        Question known = question(call);
        known.bytes = bytes_of(call);
        known.wanted = choice.name;
        TUTTI_ASSIGN(choice, select(known, selection_input_));
    }
    if (choice.algorithm && !choice.algorithm->cost)
        return tl::unexpected(annotate(
            fail(
                Code::unsupported,
                "cannot estimate the time of the algorithm {}, which the cost model does not cover",
                choice.name)
                .advice(
                    "let tutti choose the algorithm (tutti_comm_explain lists those with times)")
                .value(),
            call));
    return choice.predicted_us;
}

std::string Planner::explain(const Call& call) const {
    const auto choice = choose(call);
    if (!choice) return error_text(choice.error()) + "\n";
    std::string text =
        fmt::format("{} of {} bytes on {} ranks{}: {}\n  because: {}\n",
                    collective_name(call.collective), bytes_of(call), place_.size,
                    selection_input_.one_host ? " of one host" : "", choice->name, choice->reason);
    if (choice->algorithm)
        text += fmt::format("  {}\n  {} lane{}, messages of at most {} bytes\n",
                            choice->algorithm->summary, choice->lanes,
                            choice->lanes == 1 ? "" : "s", choice->message_bytes);
    text += fmt::format("  the model, over {}{}:\n", selection_input_.wire,
                        selection_input_.crowding > 1
                            ? fmt::format(", {:g} ranks a core", selection_input_.crowding)
                            : "");
    if (selection_input_.far_message_bytes > 0)
        text += fmt::format("    (a message is {:g} ms on its way between hosts)\n",
                            at(selection_input_.constants, Term::hop) / 1000);
    for (const Choice& c : candidates(call))
        text += c.algorithm && !c.algorithm->cost
                    ? fmt::format("    {}: only when asked for\n", c.name)
                    : fmt::format("    {}: {:.2f} us\n", c.name, c.predicted_us);
    return text;
}

std::size_t Planner::work_bytes() const {
    std::size_t sum = 0;
    for (const StreamMemory& of_stream : memory_)
        sum += of_stream.prepared.bytes() + of_stream.scratch.bytes();
    return sum;
}

void Planner::make_tag(Plan& plan, const Choice& choice, const Reduction& reduction) const {
    const Call& call = plan.call;
    // If each rank knows only its own lengths, each message's tag carries its block's length
    // instead.
    plan.tag.count = !call.uneven                   ? call.count
                     : blocks_of(call).tag_by_block ? 0
                                                    : total_elements(call, place_.size);
    plan.tag.call =
        pack_call(static_cast<uint32_t>(call.collective), static_cast<uint32_t>(call.dtype), 0) |
        reduction.tag_bits | (call.uneven ? uneven_call : 0) |
        pack_part(reduction.tag_bits, number_of(call.name));
    plan.tag.root = call.root;
    if (call.collective == Collective::barrier) {
        plan.tag.count = call.name.head;
        plan.tag.root = static_cast<int32_t>(call.name.tail);
    }
    const auto index = choice.algorithm ? choice.algorithm - algorithms().data() + 1 : 0;
    plan.tag.plan = (static_cast<uint64_t>(index) << 56 |
                     static_cast<uint64_t>(choice.lanes) << 48 | choice.message_bytes) ^
                    static_cast<uint64_t>(plan.stream) << 40 ^
                    (fingerprint(call) ^ reduction.hash) >> 8;
}

Result<std::unique_ptr<Operation>> Planner::bind_intrinsic(const Plan& plan,
                                                           const Reducer& reducer) {
    IntrinsicShape shape;
    shape.collective = plan.call.collective;
    shape.count = plan.call.count / reducer.item();
    shape.reducer = reducer;
    shape.root = plan.call.root;
    shape.stream = plan.stream;
    shape.divisor = divisor_of(plan.call, place_.size);
    return intrinsics_.group->bind(shape);
}

ScheduleRequest Planner::whole_schedule(const Call& call, const Choice& choice) const {
    ScheduleRequest wanted;
    wanted.ranks = place_.size;
    wanted.rank = place_.rank;
    wanted.root = call.root;
    wanted.lanes = choice.lanes;
    wanted.hosts = hosts_;
    return wanted;
}

BindRequest Planner::schedule_request(const Plan& plan, const Choice& choice,
                                      const Reducer& reducer, const ScheduleRequest& wanted) const {
    const Call& call = plan.call;
    CallBlocks blocks = blocks_of(call);
    BindRequest request;
    request.collective = call.collective;
    request.ranks = wanted.ranks;
    request.rank = wanted.rank;
    request.root = wanted.root;
    request.schedule = choice.algorithm->make(wanted);
    for (BlockLayout* list : {&blocks.input, &blocks.output})
        for (auto* lengths : {&list->counts, &list->displacements})
            for (std::size_t& n : *lengths) n /= reducer.item();
    request.count = call.count / reducer.item();
    request.input = std::move(blocks.input);
    request.output = std::move(blocks.output);
    request.tag_by_block = blocks.tag_by_block;
    request.reducer = reducer;
    request.divisor = divisor_of(call, place_.size);
    request.message_bytes = choice.message_bytes;
    request.stream_bytes = stream_bytes;
    request.first_lane = static_cast<uint16_t>(plan.stream * max_lanes_per_stream);
    request.deadline = deadline_;
    return request;
}

Result<std::unique_ptr<Operation>> Planner::bind_schedule(const Plan& plan, const Choice& choice,
                                                          const Reducer& reducer) {
    BindRequest request =
        schedule_request(plan, choice, reducer, whole_schedule(plan.call, choice));
    request.scratch = &memory_[plan.stream].scratch;
    return bind(std::move(request), channels_);
}

Result<std::unique_ptr<Operation>> Planner::bind_operation(const Plan& plan, const Choice& choice,
                                                           const Reduction& r, bool folded) {
    const Reducer reducer = r.prepared ? r.reducer.widened() : r.reducer;
    TUTTI_ASSIGN(auto bound, choice.algorithm ? bind_schedule(plan, choice, reducer)
                                              : bind_intrinsic(plan, reducer));
    if (!r.prepared || folded) return bound;
    const Call& call = plan.call;
    PrepareRequest request;
    request.reducer = r.reducer;
    request.dtype = call.dtype;
    request.elements = total_elements(call, place_.size) / r.reducer.item();
    request.list = call.inputs > 0;
    request.inputs = std::max(1, call.inputs);
    request.factor = r.factor;
    request.prepared = &memory_[plan.stream].prepared;
    // In these two every rank has an output for every element; in an exscan the first rank has
    // none, in a reduce only the root has one.
    const bool whole_output =
        call.collective == Collective::allreduce || call.collective == Collective::scan;
    request.in_output = whole_output && r.raw_bytes() == r.reducer.bytes(Width::final);
    return prepare(request, std::move(bound));
}

Result<std::unique_ptr<Plan>> Planner::make_host(const Call& call, uint32_t stream, bool folded) {
    TUTTI_ASSIGN(const Choice choice, choose_on_host(call));
    TUTTI_ASSIGN(const Reduction reduction, this->reduction(call));
    auto plan = std::make_unique<Plan>(call, stream);
    make_tag(*plan, choice, reduction);
    TUTTI_ASSIGN(plan->operation, bind_operation(*plan, choice, reduction, folded));
    return plan;
}

}  // namespace tutti
