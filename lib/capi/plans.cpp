// The persistent collectives at the C boundary.
#include "capi/calls.h"

using namespace tutti;

extern "C" {

tutti_status tutti_plan_allreduce(tutti_comm* comm, size_t count, tutti_dtype dtype, tutti_op op,
                                  const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_allreduce", comm,
                         plain_call(Collective::allreduce, count, dtype, op), opts, plan);
    });
}

tutti_status tutti_plan_broadcast(tutti_comm* comm, size_t count, tutti_dtype dtype, int root,
                                  const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_broadcast", comm,
                         rooted_call(Collective::broadcast, count, dtype, root), opts, plan);
    });
}

tutti_status tutti_plan_barrier(tutti_comm* comm, const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_barrier", comm,
                         plain_call(Collective::barrier, 0, TUTTI_UINT8), opts, plan);
    });
}

tutti_status tutti_plan_reduce(tutti_comm* comm, size_t count, tutti_dtype dtype, tutti_op op,
                               int root, const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_reduce", comm,
                         rooted_call(Collective::reduce, count, dtype, root, op), opts, plan);
    });
}

tutti_status tutti_plan_allgather(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                  const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_allgather", comm,
                         plain_call(Collective::allgather, count, dtype), opts, plan);
    });
}

tutti_status tutti_plan_allgatherv(tutti_comm* comm, const size_t* counts,
                                   const size_t* displacements, tutti_dtype dtype,
                                   const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan(
            "tutti_plan_allgatherv", comm,
            allgatherv_call("tutti_plan_allgatherv", comm, {counts, displacements}, dtype), opts,
            plan);
    });
}

tutti_status tutti_plan_reduce_scatter(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                       tutti_op op, const tutti_call_opts* opts,
                                       tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_reduce_scatter", comm,
                         plain_call(Collective::reduce_scatter, count, dtype, op), opts, plan);
    });
}

tutti_status tutti_plan_reduce_scatterv(tutti_comm* comm, const size_t* counts, tutti_dtype dtype,
                                        tutti_op op, const tutti_call_opts* opts,
                                        tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan(
            "tutti_plan_reduce_scatterv", comm,
            reduce_scatterv_call("tutti_plan_reduce_scatterv", comm, {counts}, dtype, op), opts,
            plan);
    });
}

tutti_status tutti_plan_gather(tutti_comm* comm, size_t count, tutti_dtype dtype, int root,
                               const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_gather", comm,
                         rooted_call(Collective::gather, count, dtype, root), opts, plan);
    });
}

tutti_status tutti_plan_gatherv(tutti_comm* comm, size_t in_count, const size_t* counts,
                                const size_t* displacements, tutti_dtype dtype, int root,
                                const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_gatherv", comm,
                         rootedv_call("tutti_plan_gatherv", comm, Collective::gather, in_count,
                                      {counts, displacements}, dtype, root),
                         opts, plan);
    });
}

tutti_status tutti_plan_scatter(tutti_comm* comm, size_t count, tutti_dtype dtype, int root,
                                const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_scatter", comm,
                         rooted_call(Collective::scatter, count, dtype, root), opts, plan);
    });
}

tutti_status tutti_plan_scatterv(tutti_comm* comm, const size_t* counts,
                                 const size_t* displacements, size_t out_count, tutti_dtype dtype,
                                 int root, const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_scatterv", comm,
                         rootedv_call("tutti_plan_scatterv", comm, Collective::scatter, out_count,
                                      {counts, displacements}, dtype, root),
                         opts, plan);
    });
}

tutti_status tutti_plan_alltoall(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                 const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_alltoall", comm,
                         plain_call(Collective::alltoall, count, dtype), opts, plan);
    });
}

tutti_status tutti_plan_alltoallv(tutti_comm* comm, const size_t* in_counts,
                                  const size_t* in_displacements, const size_t* out_counts,
                                  const size_t* out_displacements, tutti_dtype dtype,
                                  const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_alltoallv", comm,
                         alltoallv_call("tutti_plan_alltoallv", comm, {in_counts, in_displacements},
                                        {out_counts, out_displacements}, dtype),
                         opts, plan);
    });
}

tutti_status tutti_plan_scan(tutti_comm* comm, size_t count, tutti_dtype dtype, tutti_op op,
                             const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_scan", comm, plain_call(Collective::scan, count, dtype, op),
                         opts, plan);
    });
}

tutti_status tutti_plan_exscan(tutti_comm* comm, size_t count, tutti_dtype dtype, tutti_op op,
                               const tutti_call_opts* opts, tutti_plan** plan) {
    return guard(comm, [&] {
        return call_plan("tutti_plan_exscan", comm,
                         plain_call(Collective::exscan, count, dtype, op), opts, plan);
    });
}

}  // extern "C"
