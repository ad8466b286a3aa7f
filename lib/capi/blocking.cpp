// The blocking collectives at the C boundary.
#include "capi/calls.h"

using namespace tutti;

extern "C" {

tutti_status tutti_allreduce(tutti_comm* comm, const void* in, void* out, size_t count,
                             tutti_dtype dtype, tutti_op op) {
    return guard(comm, [&] {
        return call_blocking("tutti_allreduce", comm,
                             plain_call(Collective::allreduce, count, dtype, op), in, out);
    });
}

tutti_status tutti_broadcast(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                             int root) {
    return guard(comm, [&] {
        return call_blocking("tutti_broadcast", comm,
                             rooted_call(Collective::broadcast, count, dtype, root), buf, buf);
    });
}

tutti_status tutti_barrier(tutti_comm* comm) {
    return guard(comm, [&] {
        return call_blocking("tutti_barrier", comm, plain_call(Collective::barrier, 0, TUTTI_UINT8),
                             nullptr, nullptr);
    });
}

tutti_status tutti_reduce(tutti_comm* comm, const void* in, void* out, size_t count,
                          tutti_dtype dtype, tutti_op op, int root) {
    return guard(comm, [&] {
        return call_blocking("tutti_reduce", comm,
                             rooted_call(Collective::reduce, count, dtype, root, op), in, out);
    });
}

tutti_status tutti_allgather(tutti_comm* comm, const void* in, void* out, size_t count,
                             tutti_dtype dtype) {
    return guard(comm, [&] {
        return call_blocking("tutti_allgather", comm,
                             plain_call(Collective::allgather, count, dtype), in, out);
    });
}

tutti_status tutti_allgatherv(tutti_comm* comm, const void* in, void* out, const size_t* counts,
                              const size_t* displacements, tutti_dtype dtype) {
    return guard(comm, [&] {
        return call_blocking(
            "tutti_allgatherv", comm,
            allgatherv_call("tutti_allgatherv", comm, {counts, displacements}, dtype), in, out);
    });
}

tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                  tutti_dtype dtype, tutti_op op) {
    return guard(comm, [&] {
        return call_blocking("tutti_reduce_scatter", comm,
                             plain_call(Collective::reduce_scatter, count, dtype, op), in, out);
    });
}

tutti_status tutti_reduce_scatterv(tutti_comm* comm, const void* in, void* out,
                                   const size_t* counts, tutti_dtype dtype, tutti_op op) {
    return guard(comm, [&] {
        return call_blocking(
            "tutti_reduce_scatterv", comm,
            reduce_scatterv_call("tutti_reduce_scatterv", comm, {counts}, dtype, op), in, out);
    });
}

tutti_status tutti_gather(tutti_comm* comm, const void* in, void* out, size_t count,
                          tutti_dtype dtype, int root) {
    return guard(comm, [&] {
        return call_blocking("tutti_gather", comm,
                             rooted_call(Collective::gather, count, dtype, root), in, out);
    });
}

tutti_status tutti_gatherv(tutti_comm* comm, const void* in, size_t in_count, void* out,
                           const size_t* counts, const size_t* displacements, tutti_dtype dtype,
                           int root) {
    return guard(comm, [&] {
        return call_blocking("tutti_gatherv", comm,
                             rootedv_call("tutti_gatherv", comm, Collective::gather, in_count,
                                          {counts, displacements}, dtype, root),
                             in, out);
    });
}

tutti_status tutti_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                           tutti_dtype dtype, int root) {
    return guard(comm, [&] {
        return call_blocking("tutti_scatter", comm,
                             rooted_call(Collective::scatter, count, dtype, root), in, out);
    });
}

tutti_status tutti_scatterv(tutti_comm* comm, const void* in, const size_t* counts,
                            const size_t* displacements, void* out, size_t out_count,
                            tutti_dtype dtype, int root) {
    return guard(comm, [&] {
        return call_blocking("tutti_scatterv", comm,
                             rootedv_call("tutti_scatterv", comm, Collective::scatter, out_count,
                                          {counts, displacements}, dtype, root),
                             in, out);
    });
}

tutti_status tutti_alltoall(tutti_comm* comm, const void* in, void* out, size_t count,
                            tutti_dtype dtype) {
    return guard(comm, [&] {
        return call_blocking("tutti_alltoall", comm, plain_call(Collective::alltoall, count, dtype),
                             in, out);
    });
}

tutti_status tutti_alltoallv(tutti_comm* comm, const void* in, const size_t* in_counts,
                             const size_t* in_displacements, void* out, const size_t* out_counts,
                             const size_t* out_displacements, tutti_dtype dtype) {
    return guard(comm, [&] {
        return call_blocking("tutti_alltoallv", comm,
                             alltoallv_call("tutti_alltoallv", comm, {in_counts, in_displacements},
                                            {out_counts, out_displacements}, dtype),
                             in, out);
    });
}

tutti_status tutti_scan(tutti_comm* comm, const void* in, void* out, size_t count,
                        tutti_dtype dtype, tutti_op op) {
    return guard(comm, [&] {
        return call_blocking("tutti_scan", comm, plain_call(Collective::scan, count, dtype, op), in,
                             out);
    });
}

tutti_status tutti_exscan(tutti_comm* comm, const void* in, void* out, size_t count,
                          tutti_dtype dtype, tutti_op op) {
    return guard(comm, [&] {
        return call_blocking("tutti_exscan", comm, plain_call(Collective::exscan, count, dtype, op),
                             in, out);
    });
}

}  // extern "C"
