#include "collectives.h"

#include <algorithm>
#include <tuple>

namespace bench {
namespace {

// The arguments of a call that follow its buffers.
constexpr auto moving = [](const Call& c) { return std::tuple(c.count, c.dtype); };
constexpr auto reducing = [](const Call& c) { return std::tuple(c.count, c.dtype, c.op); };
constexpr auto rooted = [](const Call& c) { return std::tuple(c.count, c.dtype, c.root); };
constexpr auto reducing_to_root = [](const Call& c) {
    return std::tuple(c.count, c.dtype, c.op, c.root);
};

template <auto arguments, auto run, auto start, auto plan>
constexpr Functions functions() {
    return {
        .run =
            [](tutti_comm* comm, const Call& call, Buffers b) {
                return std::apply([&](auto... a) { return run(comm, b.in, b.out, a...); },
                                  arguments(call));
            },
        .start =
            [](tutti_comm* comm, const Call& call, Buffers b, const tutti_call_opts* opts,
               tutti_request** request) {
                return std::apply(
                    [&](auto... a) { return start(comm, b.in, b.out, a..., opts, request); },
                    arguments(call));
            },
        .plan =
            [](tutti_comm* comm, const Call& call, const tutti_call_opts* opts, tutti_plan** made) {
                return std::apply([&](auto... a) { return plan(comm, a..., opts, made); },
                                  arguments(call));
            }};
}

tutti_status broadcast(tutti_comm* comm, const void*, void* buffer, std::size_t count,
                       tutti_dtype dtype, int root) {
    return tutti_broadcast(comm, buffer, count, dtype, root);
}

tutti_status ibroadcast(tutti_comm* comm, const void*, void* buffer, std::size_t count,
                        tutti_dtype dtype, int root, const tutti_call_opts* opts,
                        tutti_request** request) {
    return tutti_ibroadcast(comm, buffer, count, dtype, root, opts, request);
}

constexpr Functions barrier_functions{
    .run = [](tutti_comm* comm, const Call&, Buffers) { return tutti_barrier(comm); },
    .start = [](tutti_comm* comm, const Call&, Buffers, const tutti_call_opts* opts,
                tutti_request** request) { return tutti_ibarrier(comm, opts, request); },
    .plan = [](tutti_comm* comm, const Call&, const tutti_call_opts* opts,
               tutti_plan** plan) { return tutti_plan_barrier(comm, opts, plan); }};

constexpr Side nothing{Who::nobody};
constexpr Side message{Who::everyone};
constexpr Side message_at_root{Who::root};
constexpr Side row{Who::everyone, true};
constexpr Side row_at_root{Who::root, true};

constexpr auto none = [](double) { return 0.0; };
constexpr auto once = [](double) { return 1.0; };
constexpr auto all_but_own = [](double ranks) { return (ranks - 1) / ranks; };
constexpr auto all_but_own_twice = [](double ranks) { return 2 * (ranks - 1) / ranks; };

constexpr Collective table[] = {
    {"allreduce", message, message, Combines::all, all_but_own_twice,
     functions<reducing, tutti_allreduce, tutti_iallreduce, tutti_plan_allreduce>()},
    {"broadcast", message_at_root, message, Combines::nothing, once,
     functions<rooted, broadcast, ibroadcast, tutti_plan_broadcast>(), true},
    {"barrier", nothing, nothing, Combines::nothing, none, barrier_functions},
    {"reduce", message, message_at_root, Combines::all, once,
     functions<reducing_to_root, tutti_reduce, tutti_ireduce, tutti_plan_reduce>()},
    {"allgather", message, row, Combines::nothing, all_but_own,
     functions<moving, tutti_allgather, tutti_iallgather, tutti_plan_allgather>()},
    {"reduce_scatter", row, message, Combines::all, all_but_own,
     functions<reducing, tutti_reduce_scatter, tutti_ireduce_scatter, tutti_plan_reduce_scatter>()},
    {"gather", message, row_at_root, Combines::nothing, all_but_own,
     functions<rooted, tutti_gather, tutti_igather, tutti_plan_gather>()},
    {"scatter", row_at_root, message, Combines::nothing, all_but_own,
     functions<rooted, tutti_scatter, tutti_iscatter, tutti_plan_scatter>()},
    {"alltoall", row, row, Combines::nothing, all_but_own,
     functions<moving, tutti_alltoall, tutti_ialltoall, tutti_plan_alltoall>()},
    {"scan", message, message, Combines::up_to_own, once,
     functions<reducing, tutti_scan, tutti_iscan, tutti_plan_scan>()},
    {"exscan",
     message,
     {Who::all_but_first},
     Combines::before_own,
     once,
     functions<reducing, tutti_exscan, tutti_iexscan, tutti_plan_exscan>()},
};

}  // namespace

std::span<const Collective> collectives() {
    return table;
}

const Collective* find_collective(std::string_view name) {
    const auto* at = std::ranges::find(table, name, &Collective::name);
    return at != std::end(table) ? at : nullptr;
}

bool has(Side side, const Call& call, Seat seat) {
    switch (side.who) {
        case Who::nobody:
            return false;
        case Who::root:
            return seat.rank == call.root;
        case Who::everyone:
            return true;
        case Who::all_but_first:
            return seat.rank > 0;
    }
    return false;
}

std::size_t elements_of(Side side, const Call& call, int ranks) {
    return side.row ? call.count * static_cast<std::size_t>(ranks) : call.count;
}

std::size_t bytes_of(const Call& call, int ranks) {
    if (!call.collective->moves_data()) return 0;
    return std::max(elements_of(call.collective->in, call, ranks),
                    elements_of(call.collective->out, call, ranks)) *
           tutti_dtype_size(call.dtype);
}

}  // namespace bench
