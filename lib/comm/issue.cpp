// Issuing operations: from a call to a request that has its place in the order.
#include <unistd.h>

#include <algorithm>
#include <new>

#include "comm/communicator.h"
#include "gpu/device_group_batch.h"
#include "net/serving.h"
#include "wait/backoff.h"

namespace tutti {
namespace {

constexpr int64_t news_grace_ms = 1000;

}  // namespace

Result<> Communicator::forked() const {
    if (home_.here()) return {};
    return fail(
        Code::unsupported,
        "this process was forked after rank {} made the communicator: make a new one in the "
        "child, or exec",
        rank());
}

Result<> Communicator::may_call() const {
    TUTTI_TRY(forked());
    if (!Completion::calling_back()) [[likely]]
        return {};
    return fail(Code::invalid,
                "rank {}: a completion callback may not start, wait for or end anything: the "
                "operation waits for the callback's return. Tell another thread to do it",
                rank());
}

// By the number that the operation will have, which is the same on every rank whatever became of
// those before it: what was refused here has none, and after a mismatch all go on from the same.
uint32_t Communicator::stream_for(int wanted) const {
    if (wanted >= 0) return static_cast<uint32_t>(wanted);
    return static_cast<uint32_t>(operation_number(sequence_) %
                                 static_cast<uint64_t>(streams_.count()));
}

int64_t Communicator::limit_ms(int64_t wanted_ms) const {
    return wanted_ms < 0 ? endpoint_->config().timeout_ms : wanted_ms;
}

// ---- plans
// ---------------------------------------------------------------------------------------

Result<Plan*> Communicator::plan_for(const Call& call, uint32_t stream, int64_t timeout_ms) {
    // A plan must not outlive its operator's handle.
    if (is_user_op(call.op)) [[unlikely]] {
        if (!find_operator(call.op)) TUTTI_TRY(planner_.check(call, static_cast<int>(stream)));
    }
    PlanCache& plans = plans_[stream];
    if (Plan* plan = plans.find(call)) return plan;
    // The program may have loaded the driver since we looked: then the buffers may be a device's.
    if (!device::driver() && device::find_driver(endpoint_->config().cuda_library))
        return fail(Code::in_progress, "there is a device driver now");
    // Not under the stream's ownership: binding may wait for peers.
    TUTTI_ASSIGN(std::unique_ptr<Plan> bound, bind_plan(call, stream, timeout_ms));
    return plans.keep(std::move(bound));
}

Result<std::unique_ptr<Plan>> Communicator::bind_plan(const Call& call, uint32_t stream,
                                                      int64_t timeout_ms) {
    TUTTI_TRY(planner_.check(call, static_cast<int>(stream)));
    if (agreement_.alarm()) {
        // Others may have left because they were refused the same call: this rank hears why.
        if (call.path == Path::host) TUTTI_TRY(planner_.choose_on_host(call));
        TUTTI_TRY(enter_before_binding(stream, timeout_ms));
    }
    auto plan = make_or_say(call, stream, timeout_ms);
    if (!plan) return tl::unexpected(binding_failed(plan.error()));
    return plan;
}

// Where memory ran out the others have to know too: they wait for this rank.
Result<std::unique_ptr<Plan>> Communicator::make_or_say(const Call& call, uint32_t stream,
                                                        int64_t timeout_ms) {
    const net::GiveUpWhen over(agreement_.ended());
    try {
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        return call.path == Path::host ? planner_.make(call, stream, deadline)
                                       : device_planner_.make(call, stream, deadline);
    } catch (const std::bad_alloc&) {
        return fail(Code::no_memory, "there is no memory to prepare {} of {} elements",
                    collective_name(call.collective), call.count);
    }
}

// Binding talks to peers and the store; those that are gone are not waited for.
Result<> Communicator::enter_before_binding(uint32_t stream, int64_t timeout_ms) {
    if (!agreement_.alarm()) return {};
    Stream& s = streams_[stream];
    TUTTI_TRY(wait_to_enter(s, timeout_ms));
    streams_.release(s);
    return {};
}

// A peer that could not be reached may have died a moment ago: the control plane knows its name. At
// the call's deadline there has been time enough for news, and for want of memory there is no other
// cause.
template <typename Known>
void Communicator::wait_for_news(const Error& error, Known known) {
    const Deadline news = Deadline::after_ms(news_grace_ms);
    const bool own = error.code == Code::timeout || error.code == Code::no_memory;
    while (!own && !known() && !news.passed()) {
        endpoint_->pump();
        ::usleep(1000);
    }
}

// The others must not wait for what this rank cannot do.
void Communicator::tell_failed(const Error& error) {
    agreement_.raise({error.code, error.rank == nobody ? rank() : error.rank, 0,
                      fmt::format("rank {}: {}", rank(), error.message)});
}

Error Communicator::binding_failed(const Error& error) {
    // What is refused is refused on all ranks; but only two know that they cannot reach each other.
    const bool refused = error.code == Code::invalid || error.code == Code::unsupported;
    if (refused && error.rank == nobody) return error;
    wait_for_news(error, [this] { return agreement_.alarm(); });
    if (!agreement_.alarm()) tell_failed(error);
    // The others must not wait for this call, which some may have begun.
    agreement_.give_up(sequence_ + 1);
    return agreement_.verdict(sequence_ + 1).value_or(error);
}

// That somebody has left is the end of what goes to that rank, and of nothing else: collectives
// have their own verdict.
Error Communicator::contact_failed(const Transfer& transfer, const Error& error) {
    const auto left = [&] { return agreement_.has_left(transfer.peer); };
    wait_for_news(error, [&] { return agreement_.ended() || left(); });
    if (!agreement_.ended() && left()) return Transfers::left_error(transfer.peer);
    if (!agreement_.ended()) tell_failed(error);
    return agreement_.over().value_or(error);
}

Result<std::unique_ptr<Plan>> Communicator::make_plan(const Call& call, int stream) {
    TUTTI_TRY(may_call());
    TUTTI_TRY(planner_.check(call, stream));
    const uint64_t count = static_cast<uint64_t>(streams_.count());
    const uint64_t own = stream < 0 ? plans_made_ % count : static_cast<uint64_t>(stream);
    TUTTI_ASSIGN(auto plan, bind_plan(call, static_cast<uint32_t>(own), limit_ms(-1)));
    if (stream < 0) ++plans_made_;
    return plan;
}

// ---- issuing
// -------------------------------------------------------------------------------------

// While there is an alarm: waits until the communicator works again, or says why it does not.
Result<> Communicator::wait_to_enter(Stream& stream, int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    const int64_t began_ns = now_ns();
    int64_t ask_ns = Inquiry::ask_at(began_ns, began_ns, timeout_ms);
    Backoff backoff(oversubscribed_);
    for (;;) {
        {
            Owned owned(stream.owner);
            Error error;
            const auto entry = agreement_.admit(operation_number(sequence_) + 1, error);
            if (entry == Agreement::Entry::proceed) {
                owned.keep();
                return {};
            }
            if (entry == Agreement::Entry::refused) {
                owned.drop();
                settle();
                streams_.dump_once();
                return tl::unexpected(std::move(error));
            }
        }
        settle();
        // What is not launched yet does not end, and all are waited for.
        if (DeviceGroupBatch::here().holds(*this))
            return fail(Code::invalid,
                        "rank {}: the ranks called different things, and this thread has launches "
                        "to make: call tutti_launch_end, which says more, before anything else",
                        rank());
        if (deadline.passed()) return tl::unexpected(not_all_back(timeout_ms));
        if (const int64_t now = now_ns(); now >= ask_ns) {
            ask_ns = Inquiry::ask_at(began_ns, now, timeout_ms);
            agreement_.inquiry().ask_who_is_behind();
        }
        endpoint_->pump();
        // Others may have to get on with another communicator before they come back.
        bool moved = false;
        if (manual()) endpoint_->serve_clients(moved);
        if (backoff.next(moved) == Backoff::Turn::sleep) endpoint_->sleep(1, endpoint_->rounds());
    }
}

// The call that gave up has no number, and others may yet make it: it fails for everyone, or what
// follows would be taken for other calls than it is.
Error Communicator::not_all_back(int64_t timeout_ms) {
    const Late late = agreement_.inquiry().behind();
    Error error{Code::timeout, late.first(), 0,
                fmt::format("rank {}: after a mismatch, not all ranks came back within {} ms",
                            rank(), timeout_ms)};
    if (late.answered) error.message += fmt::format(": {} did not", late.names());
    agreement_.raise(error);
    streams_.dump_once();
    return agreement_.over().value_or(error);
}

/// Gives the request its place in the order. On success the stream is owned.
Result<> Communicator::submit(Request& request, Plan& plan, int64_t timeout_ms) {
    Stream& stream = streams_[plan.stream];
    Owned owned(stream.owner);
    if (agreement_.alarm() || destroyed_.load(std::memory_order_relaxed)) {
        owned.drop();
        if (destroyed_)
            return fail(Code::aborted, "rank {}: the communicator was destroyed", rank());
        TUTTI_TRY(wait_to_enter(stream, timeout_ms));
    } else {
        owned.keep();
    }
    if (request.external && request.is_outdated(generation_.load())) {
        streams_.release(stream);
        return fail(Code::in_progress, "the device's group is another by now");
    }
    if (request.round_robin_stream && plan.stream != stream_for(-1)) {
        streams_.release(stream);
        return fail(Code::in_progress, "the operation's number is another by now");
    }
    request.plan = &plan;
    request.operation = plan.operation.get();
    request.timeout_ms = timeout_ms;
    request.tag = plan.tag;
    if (!plan.inputs.empty()) [[unlikely]] {
        const auto* inputs = static_cast<const void* const*>(request.in);
        std::copy_n(inputs, plan.inputs.size(), plan.inputs.begin());
        request.in = plan.inputs.data();
    }
    request.tag.sequence = sequence_ + 1;
    // The last that may fail: from here on it runs.
    if (strict_) TUTTI_TRY(propose(stream, request.tag));
    sequence_.store(request.tag.sequence, std::memory_order_relaxed);
    plan.busy.store(true, std::memory_order_relaxed);  // published with the stream
    recorder_.begin(request.tag, planner_.bytes_of(plan.call), plan.stream);
    streams_.push(stream, request);
    return {};
}

/// With the stream owned, which is given back where there is no memory for it. The others, who wait
/// for this rank, have to know.
Result<> Communicator::propose(Stream& stream, const Tag& tag) {
    try {
        agreement_.strict().propose(tag);
        return {};
    } catch (const std::bad_alloc&) {
        streams_.release(stream);
    }
    const Error error{Code::no_memory, rank(), 0,
                      fmt::format("rank {}: there is no memory to agree with the others on {}",
                                  rank(), describe_call(tag))};
    agreement_.raise(error);
    return tl::unexpected(error);
}

/// Tells what earlier calls on device memory still owe; true: this call is one.
Result<bool> Communicator::goes_to_device(const Call& call, const void* in, const void* out,
                                          void* device_stream) {
    if (!detached_.empty()) [[unlikely]]
        TUTTI_TRY(owed());
    if (!device::driver() && !device_stream) [[likely]]
        return false;
    return on_device(call, in, out, device_stream);
}

Result<> Communicator::run(const Call& call, const void* in, void* out) {
    TUTTI_TRY(may_call());
    TUTTI_ASSIGN(const bool device, goes_to_device(call, in, out, nullptr));
    if (device) [[unlikely]]
        return run_on_device(call, nullptr, 0, -1, in, out, nullptr);
    auto ran = run_on_host(call, in, out);
    if (!ran && ran.error().code == Code::in_progress) return run(call, in, out);
    return ran;
}

Result<> Communicator::run_own(const Call& call, const void* in, void* out) {
    auto ran = run_on_host(call, in, out);
    if (!ran && ran.error().code == Code::in_progress) return run_on_host(call, in, out);
    return ran;
}

/// in_progress: a driver came, which may know the buffers.
Result<> Communicator::run_on_host(const Call& call, const void* in, void* out) {
    TUTTI_ASSIGN(Plan * plan, plan_for(call, 0, limit_ms(-1)));
    TUTTI_TRY(may_block(call, 0));
    Request request;
    request.in = in;
    request.out = out;
    TUTTI_TRY(submit(request, *plan, endpoint_->config().timeout_ms));
    return finish_blocking(request);
}

// A blocking run on device memory had returned before it was done; any other is the caller's
// mistake.
Result<> Communicator::wait_until_free(Plan& plan) {
    TUTTI_TRY(sync(-1));
    if (!plan.busy_anywhere()) return {};
    return fail(Code::invalid, "rank {}: the plan's last run is not done", rank());
}

/// Before a plan runs again. True: on a device's memory.
Result<bool> Communicator::ready(Plan& plan, const void* in, const void* out) {
    TUTTI_TRY(may_call());
    if (plan.busy_anywhere()) [[unlikely]]
        TUTTI_TRY(wait_until_free(plan));
    return goes_to_device(plan.call, in, out, plan.device_stream);
}

Result<> Communicator::run(Plan& plan, const void* in, void* out) {
    TUTTI_ASSIGN(const bool device, ready(plan, in, out));
    if (device) [[unlikely]]
        return run_on_device(plan.call, &plan, static_cast<int>(plan.stream), plan.timeout_ms, in,
                             out, plan.device_stream);
    TUTTI_TRY(may_block(plan.call, plan.stream));
    Request request;
    request.in = in;
    request.out = out;
    TUTTI_TRY(submit(request, plan, limit_ms(plan.timeout_ms)));
    return finish_blocking(request);
}

Result<std::unique_ptr<Request>> Communicator::start(Plan& plan, const void* in, void* out) {
    TUTTI_ASSIGN(const bool device, ready(plan, in, out));
    if (device) [[unlikely]]
        return start_on_device(plan.call, &plan, static_cast<int>(plan.stream), plan.timeout_ms, in,
                               out, plan.device_stream);
    return start_on_host(plan, false, plan.timeout_ms, in, out);
}

Result<std::unique_ptr<Request>> Communicator::start_on_host(Plan& plan, bool round_robin_stream,
                                                             int64_t timeout_ms, const void* in,
                                                             void* out) {
    auto request = std::make_unique<Request>();
    request->in = in;
    request->out = out;
    request->round_robin_stream = round_robin_stream;
    request->keep = shared_from_this();
    TUTTI_TRY(submit(*request, plan, limit_ms(timeout_ms)));
    waiting_.add_pending();
    bool moved = false;
    Stream& stream = streams_[plan.stream];
    streams_.drive(stream, moved);
    streams_.release(stream);
    request->done() ? endpoint_->returns() : hand_over();
    return request;
}

Result<std::unique_ptr<Request>> Communicator::start(const Call& call, int stream,
                                                     int64_t timeout_ms, const void* in, void* out,
                                                     void* device_stream) {
    TUTTI_TRY(may_call());
    TUTTI_TRY(planner_.check(call, stream));
    TUTTI_ASSIGN(const bool device, goes_to_device(call, in, out, device_stream));
    if (device) [[unlikely]]
        return start_on_device(call, nullptr, stream, timeout_ms, in, out, device_stream);
    const auto on_host = [&]() -> Result<std::unique_ptr<Request>> {
        TUTTI_ASSIGN(Plan * plan, plan_for(call, stream_for(stream), limit_ms(timeout_ms)));
        return start_on_host(*plan, stream < 0, timeout_ms, in, out);
    };
    auto started = on_host();
    // A driver came, or a mismatch came and went: once more from the start.
    if (!started && started.error().code == Code::in_progress)
        return start(call, stream, timeout_ms, in, out, device_stream);
    return started;
}

// ---- sends and receives
// --------------------------------------------------------------------------

Result<> Communicator::post(Transfer& transfer, int64_t timeout_ms) {
    TUTTI_TRY(may_call());
    TUTTI_TRY(transfers_.check(transfer));
    if (destroyed_) return fail(Code::aborted, "rank {}: the communicator was destroyed", rank());
    // After a loss a receive takes a message that is here (Transfers::purge).
    bool may_receive = false;
    const auto over = agreement_.over(&may_receive);
    if (over && (transfer.sends || !may_receive)) return tl::unexpected(*over);
    if (auto posted = connect_and_post(transfer, timeout_ms); !posted)
        return tl::unexpected(contact_failed(transfer, posted.error()));
    return {};
}

Result<> Communicator::connect_and_post(Transfer& transfer, int64_t timeout_ms) {
    try {
        TUTTI_TRY(transfers_.connect(transfer, timeout_ms));
        transfers_.post(transfer, timeout_ms);
        return {};
    } catch (const std::bad_alloc&) {
        return fail(Code::no_memory, "there is no memory to {} {} bytes",
                    transfer.sends ? "send" : "receive", transfer.bytes);
    }
}

Result<> Communicator::run(Transfer& transfer) {
    TUTTI_TRY(post(transfer, -1));
    wait(transfer, -1);
    if (transfer.code.load(std::memory_order_acquire) == Code::ok) return {};
    return tl::unexpected(std::move(transfer.error));
}

Result<std::unique_ptr<Request>> Communicator::start(std::unique_ptr<Transfer> transfer,
                                                     int64_t timeout_ms) {
    transfer->keep = shared_from_this();
    waiting_.add_pending();
    if (auto posted = post(*transfer, timeout_ms); !posted) {
        waiting_.drop_pending();
        return tl::unexpected(std::move(posted).error());
    }
    transfer->done() ? endpoint_->returns() : hand_over();
    return transfer;
}

}  // namespace tutti
