#include "comm/failures.h"

#include "wait/pace.h"

namespace tutti {
namespace {

constexpr int64_t news_grace_ms = 1000;

// A peer that could not be reached may have died a moment ago: the control plane knows its name. At
// the call's deadline there has been time enough for news, and for want of memory there is no other
// cause.
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
    // All ranks refuse the same call; but only two know that they cannot reach each other.
    const bool refused = error.code == Code::invalid || error.code == Code::unsupported;
    if (refused && error.rank == nobody) return error;
    wait_for_news(core, error, [&] { return core.failure_protocol.alarm(); });
    if (!core.failure_protocol.alarm()) report_failure(core, error);
    // The others must not wait for this call, which some may have begun.
    const uint64_t next = core.sequence + 1;
    core.failure_protocol.fail_after_loss(next);
    return core.failure_protocol.verdict(next).value_or(error);
}

// A rank that has left ends the messages to and from it, and nothing else: collectives have their
// own verdict.
Error contact_failed(Core& core, const Transfer& transfer, const Error& error) {
    FailureProtocol& failure_protocol = core.failure_protocol;
    const auto left = [&] { return failure_protocol.has_left(transfer.peer); };
    wait_for_news(core, error, [&] { return failure_protocol.ended() || left(); });
    if (!failure_protocol.ended() && left()) return Transfers::left_error(transfer.peer);
    if (!failure_protocol.ended()) report_failure(core, error);
    return failure_protocol.fatal_error().value_or(FailureProtocol::FatalError{error}).error;
}

}  // namespace tutti
