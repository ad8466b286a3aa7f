// From a call to a bound plan: checks, choice of an algorithm, tag, binding.
#include <unistd.h>

#include <cstring>
#include <limits>

#include "collectives/catalog.h"
#include "comm/communicator.h"
#include "comm/owned.h"
#include "engine/bind.h"

namespace tutti {
namespace {

constexpr std::size_t max_cached_plans = 256;
constexpr int64_t news_grace_ms = 1000;
// Results this large leave the last-level cache before anyone reads them again.
constexpr std::size_t stream_bytes = std::size_t{64} << 20;
// What a rank that knows only its own blocks takes the whole for, as all the others do.
constexpr std::size_t unknown_bytes = std::size_t{1} << 40;

// Every length on its own, their sum, and the furthest end must be bytes that memory can hold.
Result<> check_lengths(const Call& call, Rank ranks) {
    const std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / dtype_bytes(call.dtype);
    const auto too_much = [&](std::size_t elements) {
        return fail(Code::invalid, "{}: {} elements of {} are more bytes than memory can hold",
                    collective_name(call.collective), elements, dtype_name(call.dtype));
    };
    const bool blocks = traits_of(call.collective).cut != Cut::whole && !call.uneven;
    if (call.count > most / (blocks ? static_cast<std::size_t>(ranks) : 1))
        return too_much(call.count);
    for (const BlockList* list : {&call.input, &call.output}) {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < list->counts.size(); ++i) {
            const std::size_t n = list->counts[i];
            if (n > most - sum) return too_much(n);
            sum += n;
            if (!list->displacements.empty() && list->displacements[i] > most - n)
                return fail(Code::invalid, "{}v: block {} of {} elements at {} is past all memory",
                            collective_name(call.collective), i, n, list->displacements[i]);
        }
    }
    return {};
}

}  // namespace

Result<> Communicator::check(const Call& call, int stream) const {
    const auto dtype = static_cast<int32_t>(call.dtype);
    if (dtype < 0 || dtype >= dtype_count)
        return fail(Code::invalid, "{}: {} is no dtype (0 … {})", collective_name(call.collective),
                    dtype, dtype_count - 1);
    TUTTI_TRY(reduction(call));
    if (call.root < 0 || call.root >= size_)
        return fail(Code::invalid, "{}: root {} is out of range: ranks go from 0 to {}",
                    collective_name(call.collective), call.root, size_ - 1);
    TUTTI_TRY(check_lengths(call, size_));
    if (stream >= streams())
        return fail(Code::invalid, "stream {} is out of range: there are {} (TUTTI_NRINGS)", stream,
                    streams());
    return {};
}

// A collective that reduces nothing moves bytes.
Result<Reduction> Communicator::reduction(const Call& call) const {
    if (traits_of(call.collective).reduces) return reduction_of(call, serial_);
    Reduction r;
    r.reducer = Reducer::mover(dtype_bytes(call.dtype));
    return r;
}

Result<Op> Communicator::make_premul_sum(const void* scalar, Dtype dtype) {
    UserOperator op;
    op.kind = UserOperator::Kind::premul_sum;
    op.owner = serial_;
    op.scalar_dtype = dtype;
    if (dtype_bytes(dtype) == 0)
        return fail(Code::invalid, "{} is no dtype (0 … {})", static_cast<int32_t>(dtype),
                    dtype_count - 1);
    std::memcpy(op.scalar.data(), scalar, dtype_bytes(dtype));
    op.number = ++premul_sums_;
    return add_operator(op);
}

std::size_t Communicator::bytes_of(const Call& call) const {
    return total_elements(call, size_) * dtype_bytes(call.dtype);
}

Question Communicator::question(const Call& call, std::string_view wanted) const {
    Question q;
    q.collective = call.collective;
    q.bytes = call.uneven && blocks_of(call).tag_by_block ? unknown_bytes : bytes_of(call);
    q.uneven = call.uneven;
    if (const auto r = reduction(call)) {
        q.ordered = r->ordered;
        if (r->prepared) q.bytes = total_elements(call, size_) * r->raw_bytes();
    }
    q.wanted = wanted;
    return q;
}

Result<Choice> Communicator::choose(const Call& call) const {
    std::string_view wanted = call.algorithm;
    const std::string& preferred = endpoint_->config().algo;
    if (wanted.empty() && !preferred.empty()) {
        // A preference holds where it fits; a call's own wish is an order.
        if (auto choice = select(question(call, preferred), terrain_)) return choice;
    }
    return select(question(call, wanted), terrain_);
}

std::string Communicator::explain(const Call& call) const {
    const auto choice = choose(call);
    if (!choice) return choice.error().message + "\n";
    std::string text =
        fmt::format("{} of {} bytes on {} ranks{}: {}\n  because: {}\n",
                    collective_name(call.collective), bytes_of(call), size_,
                    terrain_.one_host ? " of one host" : "", choice->name, choice->reason);
    if (choice->algorithm)
        text += fmt::format("  {}\n  {} lane{}, messages of at most {} bytes\n",
                            choice->algorithm->summary, choice->lanes,
                            choice->lanes == 1 ? "" : "s", choice->message_bytes);
    return text;
}

// A plan outlives the call that it was made for.
void Communicator::copy_call(Plan& plan, const Call& call, uint32_t stream) {
    plan.call = call;
    plan.algorithm = call.algorithm;
    plan.call.algorithm = plan.algorithm;
    plan.stream = stream;
    std::span<const std::size_t>* const lists[] = {
        &plan.call.input.counts, &plan.call.input.displacements, &plan.call.output.counts,
        &plan.call.output.displacements};
    for (auto* list : lists) plan.lengths.insert(plan.lengths.end(), list->begin(), list->end());
    const std::size_t* at = plan.lengths.data();
    for (auto* list : lists) {
        *list = {at, list->size()};
        at += list->size();
    }
}

void Communicator::make_tag(Plan& plan, const Choice& choice, const Reduction& reduction) const {
    const Call& call = plan.call;
    // Where each rank knows its own lengths only, messages carry their block's.
    plan.tag.count = !call.uneven                   ? call.count
                     : blocks_of(call).tag_by_block ? 0
                                                    : total_elements(call, size_);
    plan.tag.call =
        pack_call(static_cast<uint32_t>(call.collective), static_cast<uint32_t>(call.dtype), 0) |
        reduction.tag_bits | (call.uneven ? uneven_call : 0);
    plan.tag.root = call.root;
    const auto index = choice.algorithm ? choice.algorithm - algorithms().data() + 1 : 0;
    plan.tag.plan = (static_cast<uint64_t>(index) << 56 |
                     static_cast<uint64_t>(choice.lanes) << 48 | choice.message_bytes) ^
                    (fingerprint(call) ^ reduction.hash) >> 8;
}

Result<std::unique_ptr<Operation>> Communicator::bind_intrinsic(const Plan& plan,
                                                                const Reducer& reducer) {
    IntrinsicShape shape;
    shape.collective = plan.call.collective;
    shape.count = plan.call.count / reducer.item();
    shape.reducer = reducer;
    shape.root = plan.call.root;
    shape.stream = plan.stream;
    shape.divisor = divisor_of(plan.call, size_);
    return intrinsics_.group->bind(shape);
}

Result<std::unique_ptr<Operation>> Communicator::bind_schedule(const Plan& plan,
                                                               const Choice& choice,
                                                               const Reducer& reducer,
                                                               bool in_place) {
    const Call& call = plan.call;
    ScheduleRequest wanted;
    wanted.ranks = size_;
    wanted.rank = rank_;
    wanted.root = call.root;
    wanted.lanes = choice.lanes;
    wanted.in_place = in_place;
    wanted.hosts = group_.hosts();
    CallBlocks blocks = blocks_of(call);
    BindRequest request;
    request.collective = call.collective;
    request.ranks = size_;
    request.rank = rank_;
    request.root = call.root;
    request.schedule = choice.algorithm->make(wanted);
    for (Blocks* list : {&blocks.input, &blocks.output})
        for (auto* lengths : {&list->counts, &list->displacements})
            for (std::size_t& n : *lengths) n /= reducer.item();
    request.count = call.count / reducer.item();
    request.input = std::move(blocks.input);
    request.output = std::move(blocks.output);
    request.tag_by_block = blocks.tag_by_block;
    request.reducer = reducer;
    request.divisor = divisor_of(call, size_);
    request.message_bytes = choice.message_bytes;
    request.stream_bytes = stream_bytes;
    request.first_lane = static_cast<uint16_t>(plan.stream * max_lanes_per_stream);
    request.deadline = Deadline::after_ms(endpoint_->config().timeout_ms);
    return bind(std::move(request), channels_);
}

Result<std::unique_ptr<Operation>> Communicator::bind_operation(const Plan& plan,
                                                                const Choice& choice,
                                                                const Reduction& r) {
    const Reducer reducer = r.prepared ? r.reducer.widened() : r.reducer;
    TUTTI_ASSIGN(auto bound, choice.algorithm ? bind_schedule(plan, choice, reducer, false)
                                              : bind_intrinsic(plan, reducer));
    if (!r.prepared) return bound;
    const Call& call = plan.call;
    PrepareRequest request;
    request.reducer = r.reducer;
    request.dtype = call.dtype;
    request.elements = total_elements(call, size_) / r.reducer.item();
    request.list = call.inputs > 0;
    request.inputs = std::max(1, call.inputs);
    request.factor = r.factor;
    // Everyone has an output for every element; an exscan's first rank and a reduce's others do
    // not.
    const bool whole_output =
        call.collective == Collective::allreduce || call.collective == Collective::scan;
    request.in_output = whole_output && r.raw_bytes() == r.reducer.bytes(Width::final);
    return prepare(request, std::move(bound));
}

Result<std::unique_ptr<Plan>> Communicator::bind_plan(const Call& call, uint32_t stream) {
    TUTTI_TRY(check(call, static_cast<int>(stream)));
    TUTTI_TRY(enter_before_binding(stream));
    TUTTI_ASSIGN(Choice choice, choose(call));
    auto plan = std::make_unique<Plan>();
    copy_call(*plan, call, stream);
    TUTTI_ASSIGN(const Reduction reduction, this->reduction(call));
    make_tag(*plan, choice, reduction);
    plan->inputs.resize(static_cast<std::size_t>(call.inputs));
    auto bound = bind_operation(*plan, choice, reduction);
    if (!bound) return tl::unexpected(binding_failed(bound.error()));
    plan->operation = std::move(*bound);
    if (call.collective == Collective::alltoall) {
        auto in_place = bind_schedule(*plan, choice, reduction.reducer, true);
        if (!in_place) return tl::unexpected(binding_failed(in_place.error()));
        plan->in_place = std::move(*in_place);
    }
    return plan;
}

Result<Plan*> Communicator::plan_for(const Call& call, uint32_t stream) {
    Stream& s = streams_[stream];
    // A plan must not outlive its operator's handle.
    if (is_user_op(call.op)) [[unlikely]] {
        TUTTI_TRY(find_operator(call.op));
    }
    if (s.last_plan && !s.last_plan->busy && s.last_plan->call == call) return s.last_plan;
    for (auto& plan : s.plans)
        if (!plan->busy && plan->call == call) return s.last_plan = plan.get();
    if (s.plans.size() >= max_cached_plans) {
        s.last_plan = nullptr;
        std::erase_if(s.plans, [](auto& plan) { return !plan->busy; });
    }
    // Not under the stream's ownership: binding may wait for peers.
    TUTTI_ASSIGN(std::unique_ptr<Plan> bound, bind_plan(call, stream));
    s.plans.push_back(std::move(bound));
    return s.last_plan = s.plans.back().get();
}

// Binding talks to peers and the store; those that are gone are not waited for.
Result<> Communicator::enter_before_binding(uint32_t stream) {
    if (!agreement_.alarm()) return {};
    Stream& s = streams_[stream];
    TUTTI_TRY(wait_to_enter(s, endpoint_->config().timeout_ms));
    release(s);
    return {};
}

// A peer that could not be reached may have died a moment ago: the control plane knows its name. If
// not, the others must not wait for a call that this rank cannot make.
Error Communicator::binding_failed(const Error& error) {
    if (error.code == Code::invalid || error.code == Code::unsupported) return error;
    const Deadline news = Deadline::after_ms(news_grace_ms);
    while (!agreement_.alarm() && !news.passed()) {
        endpoint_->pump();
        ::usleep(1000);
    }
    Error cause = error;
    if (cause.rank == nobody) cause.rank = rank_;
    if (!agreement_.alarm())
        agreement_.raise(
            {cause.code, cause.rank, 0, fmt::format("rank {}: {}", rank_, cause.message)});
    return agreement_.verdict(sequence_ + 1).value_or(cause);
}

Result<std::unique_ptr<Plan>> Communicator::make_plan(const Call& call, int stream) {
    TUTTI_TRY(forked());
    TUTTI_TRY(check(call, stream));
    if (stream < 0) stream = static_cast<int>(round_robin_++ % static_cast<uint64_t>(streams()));
    return bind_plan(call, static_cast<uint32_t>(stream));
}

}  // namespace tutti
