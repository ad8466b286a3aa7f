#include "comm/admission.h"

#include <algorithm>
#include <new>

#include "comm/offload.h"
#include "wait/backoff.h"

namespace tutti {

uint32_t Admission::stream_for(int wanted) const {
    if (wanted >= 0) return static_cast<uint32_t>(wanted);
    return static_cast<uint32_t>(operation_number(core_.sequence) %
                                 static_cast<uint64_t>(core_.streams.count()));
}

Result<> Admission::enter(uint32_t stream, int64_t timeout_ms) {
    if (!core_.failure_protocol.alarm()) return {};
    Stream& s = core_.streams[stream];
    TUTTI_TRY(wait_to_enter(s, timeout_ms));
    core_.streams.release(s);
    return {};
}

// On success the caller owns the stream.
Result<> Admission::wait_to_enter(Stream& stream, int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    const int64_t began_ns = now_ns();
    int64_t ask_ns = Inquiry::ask_at(began_ns, began_ns, timeout_ms);
    Backoff backoff(core_.oversubscribed);
    for (;;) {
        {
            OwnerGuard owned(stream.owner);
            auto entry = core_.failure_protocol.admit(operation_number(core_.sequence) + 1);
            if (!entry) {
                owned.drop();
                core_.apply_verdicts();
                core_.streams.dump_once();
                return tl::unexpected(std::move(entry).error());
            }
            if (*entry == FailureProtocol::CallDecision::proceed) {
                owned.keep();
                return {};
            }
        }
        core_.apply_verdicts();
        TUTTI_TRY(core_.offload->may_wait_for_all());
        if (deadline.passed()) return tl::unexpected(not_all_back(timeout_ms));
        if (const int64_t now = now_ns(); now >= ask_ns) {
            ask_ns = Inquiry::ask_at(began_ns, now, timeout_ms);
            core_.failure_protocol.inquiry().ask_who_is_behind();
        }
        core_.endpoint->pump();
        // Other ranks may have to finish calls on another communicator before they come back.
        bool moved = false;
        if (core_.manual()) core_.endpoint->serve_clients(moved);
        if (backoff.next(moved) == Backoff::Turn::sleep) core_.endpoint->wakeups().nap();
    }
}

// The call that timed out here has no number, and other ranks may still make it. So the
// communicator fails on every rank; otherwise the ranks would number their later calls differently.
Error Admission::not_all_back(int64_t timeout_ms) {
    const Late late = core_.failure_protocol.inquiry().behind();
    const Error error = fail_rank(Code::timeout, late.first(),
                                  "timed out after {} ms waiting for {} after a mismatch",
                                  timeout_ms, late.answered ? late.names() : "the other ranks")
                            .on(core_.rank())
                            .value();
    core_.failure_protocol.raise(error);
    core_.streams.dump_once();
    return core_.failure_protocol.fatal_error().value_or(FailureProtocol::FatalError{error}).error;
}

// The caller owns the stream, and owns it again on success.
Result<> Admission::wait_out_alarm(Stream& stream, int64_t timeout_ms) {
    stream.owner.give();
    TUTTI_TRY(core_.may_start());
    return wait_to_enter(stream, timeout_ms);
}

Result<Admission::Place> Admission::submit(Request& request, Plan& plan, int64_t timeout_ms) {
    Stream& stream = core_.streams[plan.stream];
    stream.owner.take();
    if (core_.failure_protocol.alarm() || core_.destroyed.load(std::memory_order_relaxed))
        [[unlikely]]
        TUTTI_TRY(wait_out_alarm(stream, timeout_ms));
    // A mismatch that came and went since the request was prepared has changed the groups on
    // accelerators, and the next operation's number.
    if ((request.external && request.is_outdated(core_.generation.load())) ||
        (request.round_robin_stream && plan.stream != stream_for(-1))) [[unlikely]] {
        core_.streams.release(stream);
        return Place::outdated;
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
    request.tag.sequence = core_.sequence + 1;
    // The last step that may fail: from here on the request runs.
    if (core_.strict) TUTTI_TRY(propose(stream, request.tag));
    core_.sequence.store(request.tag.sequence, std::memory_order_relaxed);
    plan.busy.store(true, std::memory_order_relaxed);  // published by release() of the stream
    core_.recorder.begin(request.tag, plan.bytes, plan.stream);
    core_.streams.push(stream, request);
    return Place::given;
}

// The caller owns the stream. If there is no memory for the proposal, this releases the stream and
// raises the error, because the other ranks wait for this one.
Result<> Admission::propose(Stream& stream, const Tag& tag) {
    try {
        core_.failure_protocol.strict().propose(tag);
        return {};
    } catch (const std::bad_alloc&) {
        core_.streams.release(stream);
    }
    const Error error =
        fail_rank(Code::no_memory, core_.rank(),
                  "there is no memory to agree with the other ranks on {}", describe_call(tag))
            .on(core_.rank())
            .value();
    core_.failure_protocol.raise(error);
    return tl::unexpected(error);
}

}  // namespace tutti
