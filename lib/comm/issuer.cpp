#include "comm/issuer.h"

#include <array>
#include <new>

#include "comm/failures.h"
#include "comm/offload.h"
#include "net/serving.h"

namespace tutti {

// ---- plans -----------------------------------------------------------------------------------

Result<Plan*> Issuer::plan_for(const Call& call, uint32_t stream, int64_t timeout_ms) {
    if (Plan* const plan = core_.plans[stream].find(call)) return plan;
    return bind_and_keep(call, stream, timeout_ms);
}

Result<Plan*> Issuer::bind_and_keep(const Call& call, uint32_t stream, int64_t timeout_ms) {
    // Bind without owning the stream, because binding may wait for peers.
    TUTTI_ASSIGN(std::unique_ptr<Plan> bound, bind_plan(call, stream, timeout_ms));
    return core_.plans[stream].keep(std::move(bound));
}

// nullptr: the call has device memory and goes to Offload.
Result<Plan*> Issuer::host_plan(OffloadCall& asked, uint32_t stream, int64_t timeout_ms) {
    TUTTI_ASSIGN(bool offloads, core_.offload->takes(asked));
    if (offloads) return nullptr;
    if (Plan* const plan = core_.plans[stream].find(asked.call)) [[likely]]
        return plan;
    TUTTI_ASSIGN(offloads, new_driver_takes(asked));
    if (offloads) return nullptr;
    return bind_and_keep(asked.call, stream, timeout_ms);
}

// The program may have loaded a driver since the last such call: then the buffers may be device
// memory.
Result<bool> Issuer::new_driver_takes(OffloadCall& asked) {
    if (!core_.offload->appeared()) return false;
    return core_.offload->takes(asked);
}

Result<std::unique_ptr<Plan>> Issuer::bind_plan(const Call& call, uint32_t stream,
                                                int64_t timeout_ms) {
    TUTTI_TRY(core_.may_start());
    TUTTI_TRY(core_.planner.check(call, static_cast<int>(stream)));
    if (core_.failure_protocol.alarm()) {
        // Other ranks may have left because they were refused the same call: return the same
        // refusal here.
        if (call.path == Path::host) TUTTI_TRY(core_.planner.choose_on_host(call));
        TUTTI_TRY(admission_.enter(stream, timeout_ms));
    }
    auto plan = make_plan_or_say(call, stream, timeout_ms);
    if (!plan) return tl::unexpected(binding_failed(core_, plan.error()));
    (*plan)->bytes = core_.planner.bytes_of(call);
    return plan;
}

// Returns an error if memory runs out: the caller must report it to the other ranks, which wait for
// this one.
Result<std::unique_ptr<Plan>> Issuer::make_plan_or_say(const Call& call, uint32_t stream,
                                                       int64_t timeout_ms) {
    const net::CancelWaitsWhen over([this] { return core_.failure_protocol.check_unreachable(); });
    try {
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        return call.path == Path::host ? core_.planner.make(call, stream, deadline)
                                       : core_.offload->bind(call, stream, deadline);
    } catch (const std::bad_alloc&) {
        return fail(Code::no_memory, "there is no memory to prepare {} of {} elements",
                    collective_name(call.collective), call.count);
    }
}

Result<std::unique_ptr<Plan>> Issuer::make_plan(const Call& call, int stream) {
    TUTTI_TRY(core_.may_call());
    TUTTI_TRY(core_.planner.check(call, stream));
    const auto count = static_cast<uint64_t>(core_.streams.count());
    const uint64_t own = stream < 0 ? plans_made_ % count : static_cast<uint64_t>(stream);
    TUTTI_ASSIGN(auto plan, bind_plan(call, static_cast<uint32_t>(own), core_.limit_ms(-1)));
    if (stream < 0) ++plans_made_;
    return plan;
}

// ---- estimates -------------------------------------------------------------------------------

// Checks the call as if it were made. It gets no number: the other ranks do not make it.
Result<> Issuer::estimate(OffloadCall& asked) {
    TUTTI_TRY(core_.may_call());
    TUTTI_TRY(core_.planner.check(asked.call, asked.stream));
    TUTTI_ASSIGN(bool offloads, core_.offload->takes(asked));
    if (!offloads) {
        TUTTI_ASSIGN(offloads, new_driver_takes(asked));
    }
    if (offloads)
        return tl::unexpected(core_.planner.annotate(
            Estimate::refusal("collectives on device memory").value(), asked.call));
    TUTTI_ASSIGN(const double us, core_.planner.predict_us(asked.call));
    core_.estimate.add(us);
    return {};
}

std::unique_ptr<Request> Issuer::estimated_request() const {
    auto request = std::make_unique<Request>();
    request->keep = core_.self.lock();
    request->completion.fire(Code::ok);
    request->code = Code::ok;
    return request;
}

// ---- blocking calls --------------------------------------------------------------------------

Result<> Issuer::run_on_host(Plan& plan, int64_t timeout_ms, const void* in, void* out) {
    // Check before the call is queued. It would wait for ever if an operation queued before it
    // waits for this thread's tutti_launch_end.
    if (core_.streams[plan.stream].queued.load(std::memory_order_relaxed) > 0) [[unlikely]]
        TUTTI_TRY(core_.offload->may_block(plan.call, plan.stream));
    Request request;
    request.in = in;
    request.out = out;
    // A blocking call names its stream, so it is never outdated.
    TUTTI_TRY(admission_.submit(request, plan, timeout_ms));
    return progress_.finish_blocking(request);
}

Result<> Issuer::run(const Call& call, const void* in, void* out) {
    TUTTI_TRY(core_.may_call());
    OffloadCall asked{.call = call, .in = in, .out = out, .stream = 0};
    if (core_.estimate.is_of_this_thread()) [[unlikely]]
        return estimate(asked);
    const int64_t timeout_ms = core_.limit_ms(-1);
    TUTTI_ASSIGN(Plan * plan, host_plan(asked, 0, timeout_ms));
    if (!plan) [[unlikely]]
        return core_.offload->run(asked);
    return run_on_host(*plan, timeout_ms, in, out);
}

Result<> Issuer::run_own(const Call& call, const void* in, void* out) {
    const int64_t timeout_ms = core_.limit_ms(-1);
    TUTTI_ASSIGN(Plan * plan, plan_for(call, 0, timeout_ms));
    return run_on_host(*plan, timeout_ms, in, out);
}

Result<> Issuer::begin(std::string_view name) {
    Call call;
    call.collective = Collective::barrier;
    call.name = CallName::of(name).value();
    return run_own(call, nullptr, nullptr);
}

Result<bool> Issuer::all_agree(bool mine) {
    std::array<uint8_t, 1> all{mine ? uint8_t{1} : uint8_t{0}};
    Call agree;
    agree.count = all.size();
    agree.op = Op::min;
    TUTTI_TRY(run_own(agree, all.data(), all.data()));
    return all[0] != 0;
}

// ---- non-blocking calls ----------------------------------------------------------------------

// nullptr: the next operation's number has changed, and with it the round-robin stream.
Result<std::unique_ptr<Request>> Issuer::start_on_host(Plan& plan, const OffloadCall& asked) {
    auto request = std::make_unique<Request>();
    request->in = asked.in;
    request->out = asked.out;
    request->round_robin_stream = asked.stream < 0;
    request->keep = core_.self.lock();
    TUTTI_ASSIGN(const auto place,
                 admission_.submit(*request, plan, core_.limit_ms(asked.timeout_ms)));
    if (place == Admission::Place::outdated) return nullptr;
    core_.waiting.add_pending();
    bool moved = false;
    Stream& stream = core_.streams[plan.stream];
    core_.streams.drive(stream, moved);
    core_.streams.release(stream);
    request->done() ? core_.endpoint->wakeups().returns() : progress_.hand_over();
    return request;
}

Result<std::unique_ptr<Request>> Issuer::start(const Call& call, int stream, int64_t timeout_ms,
                                               const void* in, void* out, void* queue) {
    TUTTI_TRY(core_.may_call());
    // Check only the stream here: binding checks the other arguments, and a cached plan has been
    // bound.
    if (stream >= core_.streams.count()) TUTTI_TRY(core_.planner.check(call, stream));
    OffloadCall asked{.call = call,
                      .in = in,
                      .out = out,
                      .stream = stream,
                      .timeout_ms = timeout_ms,
                      .queue = queue};
    if (core_.estimate.is_of_this_thread()) [[unlikely]] {
        TUTTI_TRY(estimate(asked));
        return estimated_request();
    }
    for (;;) {
        TUTTI_ASSIGN(Plan * plan,
                     host_plan(asked, admission_.stream_for(stream), core_.limit_ms(timeout_ms)));
        if (!plan) [[unlikely]]
            return core_.offload->start(asked);
        TUTTI_ASSIGN(auto request, start_on_host(*plan, asked));
        if (request) return request;
    }
}

// ---- runs of plans ---------------------------------------------------------------------------

// A blocking run on an accelerator's memory returns before it is done, so wait for it here. If any
// other run is not done, the caller has made a mistake.
Result<> Issuer::wait_until_free(Plan& plan) {
    TUTTI_TRY(core_.offload->sync(-1));
    if (!plan.busy_anywhere()) return {};
    return fail(Code::invalid, "the plan's last run is not done")
        .advice("wait for the request of that run before the next one");
}

// Called before a plan runs again. True: Offload runs it.
Result<bool> Issuer::offloaded(OffloadCall& run) {
    TUTTI_TRY(core_.may_call());
    if (run.plan->busy_anywhere()) [[unlikely]]
        TUTTI_TRY(wait_until_free(*run.plan));
    return core_.offload->takes(run);
}

namespace {

OffloadCall run_of(Plan& plan, const void* in, void* out) {
    return {.call = plan.call,
            .in = in,
            .out = out,
            .plan = &plan,
            .stream = static_cast<int>(plan.stream),
            .timeout_ms = plan.timeout_ms,
            .queue = plan.queue};
}

}  // namespace

Result<> Issuer::run(Plan& plan, const void* in, void* out) {
    OffloadCall asked = run_of(plan, in, out);
    if (core_.estimate.is_of_this_thread()) [[unlikely]]
        return estimate(asked);
    TUTTI_ASSIGN(const bool offloads, offloaded(asked));
    if (offloads) [[unlikely]]
        return core_.offload->run(asked);
    return run_on_host(plan, core_.limit_ms(plan.timeout_ms), in, out);
}

Result<std::unique_ptr<Request>> Issuer::start(Plan& plan, const void* in, void* out) {
    OffloadCall asked = run_of(plan, in, out);
    if (core_.estimate.is_of_this_thread()) [[unlikely]] {
        TUTTI_TRY(estimate(asked));
        return estimated_request();
    }
    TUTTI_ASSIGN(const bool offloads, offloaded(asked));
    if (offloads) [[unlikely]]
        return core_.offload->start(asked);
    return start_on_host(plan, asked);
}

}  // namespace tutti
