#include "collectives.h"

#include <array>
#include <cstring>

namespace tutti_python {
namespace {

using Comm = tutti_comm;
using Opts = const tutti_call_opts*;
using Slot = tutti_request**;
using Made = tutti_plan**;

const std::size_t* list(const Counts& counts) {
    return counts.empty() ? nullptr : counts.data();
}

constexpr std::array catalog{
    Collective{"allreduce",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iallreduce(comm, c.in, c.out, c.count, c.dtype, c.op, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_allreduce(comm, c.count, c.dtype, c.op, o, p);
               }},
    Collective{"broadcast",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_ibroadcast(comm, c.out, c.count, c.dtype, c.root, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_broadcast(comm, c.count, c.dtype, c.root, o, p);
               }},
    Collective{
        "barrier",
        [](Comm* comm, const Call&, Opts o, Slot r) { return tutti_ibarrier(comm, o, r); },
        [](Comm* comm, const Call&, Opts o, Made p) { return tutti_plan_barrier(comm, o, p); }},
    Collective{"reduce",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_ireduce(comm, c.in, c.out, c.count, c.dtype, c.op, c.root, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_reduce(comm, c.count, c.dtype, c.op, c.root, o, p);
               }},
    Collective{"allgather",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iallgather(comm, c.in, c.out, c.count, c.dtype, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_allgather(comm, c.count, c.dtype, o, p);
               }},
    Collective{"reduce_scatter",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_ireduce_scatter(comm, c.in, c.out, c.count, c.dtype, c.op, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_reduce_scatter(comm, c.count, c.dtype, c.op, o, p);
               }},
    Collective{"gather",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_igather(comm, c.in, c.out, c.count, c.dtype, c.root, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_gather(comm, c.count, c.dtype, c.root, o, p);
               }},
    Collective{"scatter",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iscatter(comm, c.in, c.out, c.count, c.dtype, c.root, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_scatter(comm, c.count, c.dtype, c.root, o, p);
               }},
    Collective{"alltoall",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_ialltoall(comm, c.in, c.out, c.count, c.dtype, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_alltoall(comm, c.count, c.dtype, o, p);
               }},
    Collective{"scan",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iscan(comm, c.in, c.out, c.count, c.dtype, c.op, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_scan(comm, c.count, c.dtype, c.op, o, p);
               }},
    Collective{"exscan",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iexscan(comm, c.in, c.out, c.count, c.dtype, c.op, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_exscan(comm, c.count, c.dtype, c.op, o, p);
               }},
    Collective{"allgatherv",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iallgatherv(comm, c.in, c.out, list(c.counts), nullptr, c.dtype, o,
                                            r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_allgatherv(comm, list(c.counts), nullptr, c.dtype, o, p);
               }},
    Collective{"reduce_scatterv",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_ireduce_scatterv(comm, c.in, c.out, list(c.counts), c.dtype, c.op,
                                                 o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_reduce_scatterv(comm, list(c.counts), c.dtype, c.op, o, p);
               }},
    Collective{"gatherv",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_igatherv(comm, c.in, c.count, c.out, list(c.counts), nullptr,
                                         c.dtype, c.root, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_gatherv(comm, c.count, list(c.counts), nullptr, c.dtype,
                                             c.root, o, p);
               }},
    Collective{"scatterv",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_iscatterv(comm, c.in, list(c.counts), nullptr, c.out, c.count,
                                          c.dtype, c.root, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_scatterv(comm, list(c.counts), nullptr, c.count, c.dtype,
                                              c.root, o, p);
               }},
    Collective{"alltoallv",
               [](Comm* comm, const Call& c, Opts o, Slot r) {
                   return tutti_ialltoallv(comm, c.in, list(c.counts), nullptr, c.out,
                                           list(c.out_counts), nullptr, c.dtype, o, r);
               },
               [](Comm* comm, const Call& c, Opts o, Made p) {
                   return tutti_plan_alltoallv(comm, list(c.counts), nullptr, list(c.out_counts),
                                               nullptr, c.dtype, o, p);
               }},
};

}  // namespace

const Collective& collective_of(const char* name) {
    for (const Collective& collective : catalog)
        if (std::strcmp(collective.name, name) == 0) return collective;
    throw nanobind::value_error((std::string("unknown collective '") + name +
                                 "'. What to do: pass one that tutti.info() lists")
                                    .c_str());
}

}  // namespace tutti_python
