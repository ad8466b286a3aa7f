#include "comm/failures.h"

#include "wait/pace.h"

namespace tutti {
namespace {

constexpr int64_t news_grace_ms = 1000;

// A peer that could not be reached may just have died: wait until the control plane reports which
// rank is lost. Do not wait after a time-out, because the report has had time enough, or if memory
// ran out, because that is the cause.
template <typename Known>
void wait_for_news(Core& core, const Error& error, Known known) {
    Pace pace(Deadline::after_ms(news_grace_ms), {.sleep_us = 1000});
    const bool own = error.code == Code::timeout || error.code == Code::no_memory;
    while (!own && !known()) {
        core.endpoint->pump();
        if (!pace.pause()) return;
    }
}

}  // namespace

void report_failure(Core& core, const Error& error) {
    Error told = on_rank(core.rank(), error);
    if (told.rank == nobody) told.rank = core.rank();
    core.failure_protocol.raise(told);
}

Error binding_failed(Core& core, const Error& error) {
    // Every rank refuses an invalid call alike, so it needs no report. But if two ranks cannot
    // reach each other (error.rank is set), only these two know.
    const bool refused = error.code == Code::invalid || error.code == Code::unsupported;
    if (refused && error.rank == nobody) return error;
    wait_for_news(core, error, [&] { return core.failure_protocol.alarm(); });
    if (!core.failure_protocol.alarm()) report_failure(core, error);
    // Other ranks may have begun this call, and must not wait for this rank.
    const uint64_t next = core.sequence + 1;
    core.failure_protocol.fail_after_loss(next);
    return core.failure_protocol.verdict(next).value_or(error);
}

// If the peer has left, only messages to and from it fail; collectives get their own verdict.
Error contact_failed(Core& core, const Transfer& transfer, const Error& error) {
    FailureProtocol& failure_protocol = core.failure_protocol;
    const auto left = [&] { return failure_protocol.has_left(transfer.peer); };
    wait_for_news(core, error, [&] { return failure_protocol.ended() || left(); });
    if (!failure_protocol.ended() && left()) return Transfers::left_error(transfer.peer);
    if (!failure_protocol.ended()) report_failure(core, error);
    return failure_protocol.fatal_error().value_or(FailureProtocol::FatalError{error}).error;
}

}  // namespace tutti
