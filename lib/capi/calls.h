// Code that every collective's three forms share: it makes the call, checks its buffers and reads
// its options.
#pragma once

#include "capi/boundary.h"

namespace tutti {

/// A collective's C arguments as a call. op matters only where the collective reduces.
Call plain_call(Collective collective, std::size_t count, tutti_dtype dtype, tutti_op op = 0);
Call rooted_call(Collective collective, std::size_t count, tutti_dtype dtype, int root,
                 tutti_op op = 0);

/// The C arrays that describe one buffer's blocks.
struct BlockArrays {
    const std::size_t* counts = nullptr;
    const std::size_t* displacements = nullptr;
};
/// The v forms. Counts and displacements are those of every rank's block, in elements;
/// displacements NULL: one after the other. INVALID for a list that is missing.
Result<Call> allgatherv_call(const char* function, tutti_comm* comm, const BlockArrays& out,
                             tutti_dtype dtype);
Result<Call> reduce_scatterv_call(const char* function, tutti_comm* comm, const BlockArrays& in,
                                  tutti_dtype dtype, tutti_op op);
/// gather or scatter: own_count is this rank's block's; the lists matter at the root only.
Result<Call> rootedv_call(const char* function, tutti_comm* comm, Collective collective,
                          std::size_t own_count, const BlockArrays& at_root, tutti_dtype dtype,
                          int root);
Result<Call> alltoallv_call(const char* function, tutti_comm* comm, const BlockArrays& in,
                            const BlockArrays& out, tutti_dtype dtype);

/// Checks that no buffer with elements is NULL, and that buffers overlap only in place.
Result<> check_buffers(const char* function, const Communicator& comm, const Call& call,
                       const void* in, const void* out);

/// The same for every entry of an allreduce_multi's list; no NULL list.
Result<> check_inputs(const char* function, const Communicator& comm, const Call& call,
                      const void* const* ins, void* out);

/// The caller's options, or the defaults; an error for options that this build does not support.
Result<tutti_call_opts> read_opts(const char* function, const tutti_call_opts* opts);

Result<> call_blocking(const char* function, tutti_comm* comm, const Call& call, const void* in,
                       void* out);
inline Result<> call_blocking(const char* function, tutti_comm* comm, const Result<Call>& call,
                              const void* in, void* out) {
    return call ? call_blocking(function, comm, *call, in, out) : tl::unexpected(call.error());
}
Result<> call_start(const char* function, tutti_comm* comm, Result<Call> call, const void* in,
                    void* out, const tutti_call_opts* opts, tutti_request** request);
/// The same for buffers that were checked.
Result<> start_checked(const char* function, tutti_comm* comm, const Call& call, const void* in,
                       void* out, const tutti_call_opts* opts, tutti_request** request);
Result<> call_plan(const char* function, tutti_comm* comm, Result<Call> call,
                   const tutti_call_opts* opts, tutti_plan** plan);

}  // namespace tutti
