// The non-blocking collectives at the C boundary.
#include "capi/calls.h"

using namespace tutti;

extern "C" {

tutti_status tutti_iallreduce(tutti_comm* comm, const void* in, void* out, size_t count,
                              tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                              tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_iallreduce", comm,
                          plain_call(Collective::allreduce, count, dtype, op), in, out, opts,
                          request);
    });
}

tutti_status tutti_ibroadcast(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                              int root, const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ibroadcast", comm,
                          rooted_call(Collective::broadcast, count, dtype, root), buf, buf, opts,
                          request);
    });
}

tutti_status tutti_ibarrier(tutti_comm* comm, const tutti_call_opts* opts,
                            tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ibarrier", comm, plain_call(Collective::barrier, 0, TUTTI_UINT8),
                          nullptr, nullptr, opts, request);
    });
}

tutti_status tutti_ireduce(tutti_comm* comm, const void* in, void* out, size_t count,
                           tutti_dtype dtype, tutti_op op, int root, const tutti_call_opts* opts,
                           tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ireduce", comm,
                          rooted_call(Collective::reduce, count, dtype, root, op), in, out, opts,
                          request);
    });
}

tutti_status tutti_iallgather(tutti_comm* comm, const void* in, void* out, size_t count,
                              tutti_dtype dtype, const tutti_call_opts* opts,
                              tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_iallgather", comm, plain_call(Collective::allgather, count, dtype),
                          in, out, opts, request);
    });
}

tutti_status tutti_iallgatherv(tutti_comm* comm, const void* in, void* out, const size_t* counts,
                               const size_t* displacements, tutti_dtype dtype,
                               const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&] {
        return call_start(
            "tutti_iallgatherv", comm,
            allgatherv_call("tutti_iallgatherv", comm, {counts, displacements}, dtype), in, out,
            opts, request);
    });
}

tutti_status tutti_ireduce_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                   tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                                   tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ireduce_scatter", comm,
                          plain_call(Collective::reduce_scatter, count, dtype, op), in, out, opts,
                          request);
    });
}

tutti_status tutti_ireduce_scatterv(tutti_comm* comm, const void* in, void* out,
                                    const size_t* counts, tutti_dtype dtype, tutti_op op,
                                    const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ireduce_scatterv", comm,
                          reduce_scatterv_call("tutti_ireduce_scatterv", comm, {counts}, dtype, op),
                          in, out, opts, request);
    });
}

tutti_status tutti_igather(tutti_comm* comm, const void* in, void* out, size_t count,
                           tutti_dtype dtype, int root, const tutti_call_opts* opts,
                           tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_igather", comm,
                          rooted_call(Collective::gather, count, dtype, root), in, out, opts,
                          request);
    });
}

tutti_status tutti_igatherv(tutti_comm* comm, const void* in, size_t in_count, void* out,
                            const size_t* counts, const size_t* displacements, tutti_dtype dtype,
                            int root, const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_igatherv", comm,
                          rootedv_call("tutti_igatherv", comm, Collective::gather, in_count,
                                       {counts, displacements}, dtype, root),
                          in, out, opts, request);
    });
}

tutti_status tutti_iscatter(tutti_comm* comm, const void* in, void* out, size_t count,
                            tutti_dtype dtype, int root, const tutti_call_opts* opts,
                            tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_iscatter", comm,
                          rooted_call(Collective::scatter, count, dtype, root), in, out, opts,
                          request);
    });
}

tutti_status tutti_iscatterv(tutti_comm* comm, const void* in, const size_t* counts,
                             const size_t* displacements, void* out, size_t out_count,
                             tutti_dtype dtype, int root, const tutti_call_opts* opts,
                             tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_iscatterv", comm,
                          rootedv_call("tutti_iscatterv", comm, Collective::scatter, out_count,
                                       {counts, displacements}, dtype, root),
                          in, out, opts, request);
    });
}

tutti_status tutti_ialltoall(tutti_comm* comm, const void* in, void* out, size_t count,
                             tutti_dtype dtype, const tutti_call_opts* opts,
                             tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ialltoall", comm, plain_call(Collective::alltoall, count, dtype),
                          in, out, opts, request);
    });
}

tutti_status tutti_ialltoallv(tutti_comm* comm, const void* in, const size_t* in_counts,
                              const size_t* in_displacements, void* out, const size_t* out_counts,
                              const size_t* out_displacements, tutti_dtype dtype,
                              const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_ialltoallv", comm,
                          alltoallv_call("tutti_ialltoallv", comm, {in_counts, in_displacements},
                                         {out_counts, out_displacements}, dtype),
                          in, out, opts, request);
    });
}

tutti_status tutti_iscan(tutti_comm* comm, const void* in, void* out, size_t count,
                         tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                         tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_iscan", comm, plain_call(Collective::scan, count, dtype, op), in,
                          out, opts, request);
    });
}

tutti_status tutti_iexscan(tutti_comm* comm, const void* in, void* out, size_t count,
                           tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                           tutti_request** request) {
    return guard(comm, [&] {
        return call_start("tutti_iexscan", comm, plain_call(Collective::exscan, count, dtype, op),
                          in, out, opts, request);
    });
}

}  // extern "C"
