#include "comm/core.h"

#include <fmt/format.h>

#include <utility>

namespace tutti {

Core::Core(std::shared_ptr<Endpoint> joined, Group members, bool one_host,
           FailureProtocolHost& host)
    : endpoint(std::move(joined)),
      group(std::move(members)),
      strict(endpoint->config().check == Check::strict),
      oversubscribed(endpoint->oversubscribed()),
      channels(*endpoint, group),
      failure_protocol(group.rank(), group.size(), group.id(), host),
      consensus(group.rank(), group.size(), group.id(), host),
      waiting(endpoint->wakeups()),
      planner(*endpoint, channels, {group.rank(), group.size(), one_host}),
      plans(static_cast<std::size_t>(endpoint->config().nrings)),
      streams(endpoint->config(), group.rank(), failure_protocol, recorder, waiting),
      transfers(endpoint->config(), group, planner.max_message_bytes(), channels, failure_protocol,
                waiting),
      memory(group.rank(), endpoint->transports().all()) {}

Result<> Core::forked() const {
    if (home.here()) return {};
    return fail(Code::unsupported, "this process was forked after the communicator was made")
        .advice("make a new communicator in the child, or call exec there")
        .on(rank());
}

Result<> Core::refuse_call() const {
    TUTTI_TRY(forked());
    return fail(Code::invalid,
                "a completion callback may not start, wait for or end an operation, which waits "
                "for the callback's return")
        .advice("let another thread make the call")
        .on(rank());
}

Result<> Core::may_start() const {
    if (!destroyed.load(std::memory_order_relaxed)) return {};
    if (left)
        return fail(Code::invalid, "this rank has left the communicator")
            .advice("call tutti_comm_destroy, and go on with another communicator")
            .on(rank());
    return fail(Code::aborted, "the communicator was destroyed")
        .advice("call tutti_comm_destroy after every other call, or make a new communicator")
        .on(rank());
}

void Core::set_hosts(Hosts hosts) {
    group.set_hosts(std::move(hosts));
    planner.use(*group.hosts());
}

Endpoint::Intrinsics Core::join_intrinsics(Deadline deadline) const {
    endpoint->look_up_neighbours(group, deadline);
    return endpoint->join_intrinsics(group, planner.selection_input().one_host, deadline);
}

void Core::use_intrinsics(Endpoint::Intrinsics intrinsics) {
    const auto held = streams.hold_all();
    planner.use(std::move(intrinsics));
}

void Core::apply_verdicts() {
    consensus.learn(failure_protocol.gone());
    // Messages that were sent before the failure became known may have arrived and not been read.
    if (failure_protocol.ended()) endpoint->transports().progress();
    streams.apply_verdicts();
    bool moved = false;
    transfers.drive(moved);
    endpoint->wakeups().ring();
    end_tied();
}

void Core::tie(std::shared_ptr<Core> part) {
    {
        const std::lock_guard lock(tied_mutex);
        tied = std::move(part);
    }
    end_tied();
}

void Core::end_tied() {
    if (!failure_protocol.ended()) return;
    std::shared_ptr<Core> part;
    {
        const std::lock_guard lock(tied_mutex);
        part = std::move(tied);
    }
    if (!part) return;
    Error cause = failure_protocol.fatal_error()->error;
    // If the rank at fault is no member, the part ends because of this rank, which leaves it.
    const Rank in_part = part->group.of_job(group.in_job(cause.rank));
    cause.rank = in_part == nobody ? part->rank() : in_part;
    cause.message = fmt::format("the communicator that it is made of has ended: {}", cause.message);
    part->failure_protocol.raise(cause);
}

void Core::resume(uint64_t last) {
    const auto held = streams.hold_all();
    generation.fetch_add(1);
    sequence = last;
    planner.reset_intrinsics();
}

}  // namespace tutti
