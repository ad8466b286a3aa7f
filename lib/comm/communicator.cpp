// Creating a communicator, binding plans and issuing operations. drive.cpp runs them.
#include "comm/communicator.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "collectives/catalog.h"
#include "comm/backoff.h"
#include "comm/owned.h"
#include "engine/bind.h"

namespace tutti {
namespace {

constexpr std::size_t max_cached_plans = 256;
constexpr int64_t news_grace_ms = 1000;
constexpr std::size_t intrinsic_limit_bytes = 64 * 1024;
// Results this large leave the last-level cache before anyone reads them again.
constexpr std::size_t stream_bytes = std::size_t{64} << 20;

std::atomic<uint32_t> fork_generation{0};

uint32_t current_process() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
    (void)registered;
    return fork_generation.load(std::memory_order_relaxed);
}

Terrain survey(const Endpoint& endpoint, IntrinsicGroup* group) {
    Terrain t;
    t.ranks = endpoint.config().size;
    t.one_host = endpoint.one_host();
    t.mapped = t.one_host;
    t.max_message_bytes = 128 * 1024;
    bool first = true;
    for (const auto& transport : endpoint.transports()) {
        const Capabilities& c = transport->capabilities();
        // The preferred transport decides on one host; across hosts any of them may be met.
        if (first || !t.one_host)
            t.max_message_bytes =
                first ? c.max_message_bytes : std::min(t.max_message_bytes, c.max_message_bytes);
        if (first) t.mapped = t.one_host && c.mapped;
        first = false;
    }
    // A fallback to a later transport must carry the messages too.
    for (const auto& transport : endpoint.transports())
        t.max_message_bytes =
            std::min(t.max_message_bytes, transport->capabilities().max_message_bytes);
    if (group) {
        t.intrinsic = endpoint.world_group_name();
        t.intrinsic_bytes = intrinsic_limit_bytes;
    }
    return t;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Endpoint> endpoint)
    : endpoint_(std::move(endpoint)),
      rank_(endpoint_->config().rank),
      size_(endpoint_->config().size),
      strict_(endpoint_->config().check == Check::strict),
      crowded_(Backoff::crowded(endpoint_->machine_ranks())),
      process_(current_process()),
      terrain_(survey(*endpoint_, endpoint_->world_group())),
      channels_(*endpoint_, id_),
      agreement_(rank_, size_, id_, *this),
      streams_(static_cast<std::size_t>(endpoint_->config().nrings)) {}

Communicator::~Communicator() {
    destroy();
}

Result<std::shared_ptr<Communicator>> Communicator::create(const Config& config,
                                                           std::shared_ptr<Store> own_store) {
    if (!config.algo.empty() &&
        std::none_of(algorithms().begin(), algorithms().end(),
                     [&](const Algorithm& a) { return a.name == config.algo; }) &&
        config.algo != "flat") {
        std::string names = "flat";
        for (const Algorithm& a : algorithms()) names += fmt::format(", {}", a.name);
        return fail(Code::invalid, "TUTTI_ALGO: there is no algorithm '{}'; there are: {}",
                    config.algo, names);
    }
    TUTTI_ASSIGN(std::shared_ptr<Endpoint> endpoint, Endpoint::join(config, std::move(own_store)));
    std::shared_ptr<Communicator> comm(new Communicator(std::move(endpoint)));
    comm->endpoint_->add(id_, comm.get());
    return comm;
}

Result<> Communicator::forked() const {
    if (fork_generation.load(std::memory_order_relaxed) == process_) return {};
    return fail(
        Code::unsupported,
        "this process was forked after rank {} made the communicator: make a new one in the "
        "child, or exec",
        rank_);
}

Result<> Communicator::check(const Call& call, int stream) const {
    const auto dtype = static_cast<int32_t>(call.dtype);
    if (dtype < 0 || dtype >= dtype_count)
        return fail(Code::invalid, "{}: {} is no dtype (0 … {})", collective_name(call.collective),
                    dtype, dtype_count - 1);
    if (call.collective == Collective::allreduce) {
        if (auto made = Reducer::make(call.dtype, call.op); !made)
            return tl::unexpected(std::move(made).error());
    }
    if (call.root < 0 || call.root >= size_)
        return fail(Code::invalid, "{}: root {} is out of range: ranks go from 0 to {}",
                    collective_name(call.collective), call.root, size_ - 1);
    if (call.count > std::numeric_limits<std::ptrdiff_t>::max() / dtype_bytes(call.dtype))
        return fail(Code::invalid, "{}: {} elements of {} are more bytes than memory can hold",
                    collective_name(call.collective), call.count, dtype_name(call.dtype));
    if (stream >= streams())
        return fail(Code::invalid, "stream {} is out of range: there are {} (TUTTI_NRINGS)", stream,
                    streams());
    return {};
}

Result<Choice> Communicator::choose(const Call& call) const {
    std::string_view wanted = call.algorithm;
    const std::string& preferred = endpoint_->config().algo;
    if (wanted.empty() && !preferred.empty()) {
        // A preference holds where it fits; a call's own wish is an order.
        if (auto choice = select(call.collective, call.bytes(), preferred, terrain_)) return choice;
    }
    return select(call.collective, call.bytes(), wanted, terrain_);
}

std::string Communicator::explain(const Call& call) const {
    const auto choice = choose(call);
    if (!choice) return choice.error().message + "\n";
    std::string text = fmt::format(
        "{} of {} bytes on {} ranks{}: {}\n  because: {}\n", collective_name(call.collective),
        call.bytes(), size_, terrain_.one_host ? " of one host" : "", choice->name, choice->reason);
    if (choice->algorithm)
        text += fmt::format("  {}\n  {} lane{}, messages of at most {} bytes\n",
                            choice->algorithm->summary, choice->lanes,
                            choice->lanes == 1 ? "" : "s", choice->message_bytes);
    return text;
}

// ---- plans
// ---------------------------------------------------------------------------------------

Result<std::unique_ptr<Plan>> Communicator::bind_plan(const Call& call, uint32_t stream) {
    TUTTI_TRY(check(call, static_cast<int>(stream)));
    TUTTI_TRY(enter_before_binding(stream));
    TUTTI_ASSIGN(Choice choice, choose(call));
    auto plan = std::make_unique<Plan>();
    plan->algorithm = call.algorithm;
    plan->call = call;
    plan->call.algorithm = plan->algorithm;
    plan->stream = stream;
    plan->tag.count = call.count;
    plan->tag.call = pack_call(static_cast<uint32_t>(call.collective),
                               static_cast<uint32_t>(call.dtype), static_cast<uint32_t>(call.op));
    plan->tag.root = call.root;
    const auto index = choice.algorithm ? choice.algorithm - algorithms().data() + 1 : 0;
    plan->tag.plan = static_cast<uint64_t>(index) << 56 |
                     static_cast<uint64_t>(choice.lanes) << 48 | choice.message_bytes;

    Reducer reducer = Reducer::mover(dtype_bytes(call.dtype));
    if (call.collective == Collective::allreduce) {
        TUTTI_ASSIGN(reducer, Reducer::make(call.dtype, call.op));
    }
    if (!choice.algorithm) {
        IntrinsicShape shape;
        shape.collective = call.collective;
        shape.count = call.count;
        shape.reducer = reducer;
        shape.root = call.root;
        shape.stream = stream;
        auto bound = endpoint_->world_group()->bind(shape);
        if (!bound) return tl::unexpected(binding_failed(bound.error()));
        plan->operation = std::move(*bound);
        return plan;
    }
    BindRequest request;
    request.collective = call.collective;
    request.ranks = size_;
    request.rank = rank_;
    request.root = call.root;
    ScheduleRequest wanted;
    wanted.ranks = size_;
    wanted.rank = rank_;
    wanted.root = call.root;
    wanted.lanes = choice.lanes;
    request.schedule = choice.algorithm->make(wanted);
    request.count = call.count;
    request.reducer = reducer;
    request.divisor = call.op == Op::avg && call.collective == Collective::allreduce ? size_ : 1;
    request.message_bytes = choice.message_bytes;
    request.stream_bytes = stream_bytes;
    request.first_lane = static_cast<uint16_t>(stream * max_lanes_per_stream);
    request.deadline = Deadline::after_ms(endpoint_->config().timeout_ms);
    auto bound = bind(std::move(request), channels_);
    if (!bound) return tl::unexpected(binding_failed(bound.error()));
    plan->operation = std::move(*bound);
    return plan;
}

Result<Plan*> Communicator::plan_for(const Call& call, uint32_t stream) {
    Stream& s = streams_[stream];
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

// ---- issuing
// -------------------------------------------------------------------------------------

// While there is an alarm: waits until the communicator works again, or says why it does not.
Result<> Communicator::wait_to_enter(Stream& stream, int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    Backoff backoff(crowded_);
    for (;;) {
        {
            Owned owned(stream.owner);
            Error error;
            const auto entry =
                agreement_.admit((sequence_ & ((uint64_t{1} << Tag::epoch_shift) - 1)) + 1, error);
            if (entry == Agreement::Entry::proceed) {
                owned.keep();
                return {};
            }
            if (entry == Agreement::Entry::refused) {
                owned.drop();
                settle();
                return tl::unexpected(std::move(error));
            }
        }
        settle();
        if (deadline.passed())
            return fail(Code::timeout,
                        "rank {}: after a mismatch, not all ranks came back within {} ms", rank_,
                        timeout_ms);
        endpoint_->pump();
        if (backoff.next(false) == Backoff::Turn::sleep) endpoint_->sleep(1);
    }
}

/// Gives the request its place in the order. On success the stream is owned.
Result<> Communicator::submit(Request& request, Plan& plan, int64_t timeout_ms) {
    Stream& stream = streams_[plan.stream];
    Owned owned(stream.owner);
    if (agreement_.alarm() || destroyed_.load(std::memory_order_relaxed)) {
        owned.drop();
        if (destroyed_)
            return fail(Code::aborted, "rank {}: the communicator was destroyed", rank_);
        TUTTI_TRY(wait_to_enter(stream, timeout_ms));
    } else {
        owned.keep();
    }
    request.plan = &plan;
    request.timeout_ms = timeout_ms;
    request.tag = plan.tag;
    request.tag.sequence = ++sequence_;
    plan.busy = true;
    recorder_.begin(request.tag, plan.call.bytes());
    if (stream.tail) {
        stream.tail->next = &request;
    } else {
        stream.head = &request;
    }
    stream.tail = &request;
    stream.queued.fetch_add(1, std::memory_order_relaxed);
    if (strict_) agreement_.propose(request.tag);
    return {};
}

Result<> Communicator::run(const Call& call, const void* in, void* out) {
    TUTTI_TRY(forked());
    auto plan = plan_for(call, 0);
    if (!plan) return tl::unexpected(std::move(plan).error());
    Request request;
    request.in = in;
    request.out = out;
    TUTTI_TRY(submit(request, **plan, endpoint_->config().timeout_ms));
    return finish_blocking(request);
}

Result<> Communicator::run(Plan& plan, const void* in, void* out) {
    TUTTI_TRY(forked());
    if (plan.busy) return fail(Code::invalid, "rank {}: the plan's last run is not done", rank_);
    Request request;
    request.in = in;
    request.out = out;
    TUTTI_TRY(submit(request, plan, endpoint_->config().timeout_ms));
    return finish_blocking(request);
}

Result<std::unique_ptr<Request>> Communicator::start(Plan& plan, int64_t timeout_ms, const void* in,
                                                     void* out) {
    TUTTI_TRY(forked());
    if (plan.busy) return fail(Code::invalid, "rank {}: the plan's last run is not done", rank_);
    auto request = std::make_unique<Request>();
    request->in = in;
    request->out = out;
    request->keep = shared_from_this();
    TUTTI_TRY(submit(*request, plan, timeout_ms < 0 ? endpoint_->config().timeout_ms : timeout_ms));
    pending_.fetch_add(1);
    bool moved = false;
    Stream& stream = streams_[plan.stream];
    drive(stream, moved);
    release(stream);
    if (!request->done() && !manual()) endpoint_->kick();
    return request;
}

Result<std::unique_ptr<Request>> Communicator::start(const Call& call, int stream,
                                                     int64_t timeout_ms, const void* in,
                                                     void* out) {
    TUTTI_TRY(forked());
    TUTTI_TRY(check(call, stream));
    if (stream < 0) stream = static_cast<int>(round_robin_++ % static_cast<uint64_t>(streams()));
    TUTTI_ASSIGN(Plan * plan, plan_for(call, static_cast<uint32_t>(stream)));
    return start(*plan, timeout_ms, in, out);
}

void Communicator::abort() {
    agreement_.raise(
        {Code::aborted, rank_, 0, fmt::format("rank {} called tutti_comm_abort", rank_)});
}

void Communicator::destroy() {
    if (destroyed_.exchange(true) || !forked()) return;
    uint64_t last = sequence_;
    for (Stream& stream : streams_) {
        Owned owned(stream.owner);
        while (stream.head) {
            last = std::min(last, stream.head->tag.sequence - 1);
            pop(stream, Code::aborted,
                {Code::aborted, rank_, 0,
                 fmt::format("rank {} destroyed the communicator while this was pending", rank_)});
        }
    }
    agreement_.say_bye(last);
    endpoint_->remove(id_);
    endpoint_->leave(Deadline::after_ms(1000));
}

}  // namespace tutti
