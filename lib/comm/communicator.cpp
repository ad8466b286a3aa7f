// Creating a communicator and issuing operations. plans.cpp binds them, drive.cpp runs them.
#include "comm/communicator.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "collectives/catalog.h"
#include "comm/backoff.h"
#include "comm/owned.h"

namespace tutti {
namespace {

constexpr std::size_t intrinsic_limit_bytes = 64 * 1024;
// A send up to this is copied and done; a larger one waits for its receive and is not copied.
constexpr std::size_t eager_bytes = 32 * 1024;

std::atomic<uint32_t> fork_generation{0};
std::atomic<uint64_t> last_serial{0};

uint32_t current_process() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
    (void)registered;
    return fork_generation.load(std::memory_order_relaxed);
}

Terrain survey(const Endpoint& endpoint, Rank ranks, bool one_host) {
    Terrain t;
    t.ranks = ranks;
    t.one_host = one_host;
    t.mapped = one_host;
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
    return t;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Endpoint> endpoint, Group group, bool one_host)
    : endpoint_(std::move(endpoint)),
      group_(std::move(group)),
      rank_(group_.rank()),
      size_(group_.size()),
      one_host_(one_host),
      strict_(endpoint_->config().check == Check::strict),
      crowded_(Backoff::crowded(endpoint_->machine_ranks())),
      process_(current_process()),
      terrain_(survey(*endpoint_, size_, one_host_)),
      channels_(*endpoint_, group_),
      agreement_(rank_, size_, group_.id(), *this),
      streams_(static_cast<std::size_t>(endpoint_->config().nrings)),
      transfers_(rank_, size_, channels_,
                 {.message_bytes = terrain_.max_message_bytes,
                  .eager_bytes = std::min(terrain_.max_message_bytes, eager_bytes),
                  .unexpected_bytes = endpoint_->config().unexpected_bytes},
                 *this),
      serial_(++last_serial) {}

void Communicator::use(Endpoint::Intrinsics intrinsics) {
    intrinsics_ = std::move(intrinsics);
    if (!intrinsics_.group) return;
    terrain_.intrinsic = intrinsics_.name;
    terrain_.intrinsic_bytes = intrinsic_limit_bytes;
}

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
    const bool one_host = endpoint->one_host();
    std::shared_ptr<Communicator> comm(
        new Communicator(std::move(endpoint), Group(config.rank, config.size), one_host));
    comm->use(comm->endpoint_->take_intrinsics());
    comm->endpoint_->add(comm->group_.id(), comm.get());
    TUTTI_TRY(comm->learn_hosts());
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
    request.operation = &plan.operation_for(request.in, request.out);
    request.timeout_ms = timeout_ms;
    request.tag = plan.tag;
    if (!plan.inputs.empty()) [[unlikely]] {
        const auto* inputs = static_cast<const void* const*>(request.in);
        std::copy_n(inputs, plan.inputs.size(), plan.inputs.begin());
        request.in = plan.inputs.data();
    }
    request.tag.sequence = ++sequence_;
    plan.busy = true;
    recorder_.begin(request.tag, bytes_of(plan.call));
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
    {
        const Owned owned(transfer_owner_);
        transfers_.purge([&](const Transfer&) {
            return std::optional(
                Error{Code::aborted, rank_, 0,
                      fmt::format("rank {} destroyed the communicator before", rank_)});
        });
    }
    agreement_.say_bye(last);
    // The last communicator takes this process out of the job.
    if (endpoint_->remove(group_.id())) endpoint_->leave(Deadline::after_ms(1000));
}

}  // namespace tutti
