#include "capi/calls.h"

#include <algorithm>
#include <cstring>

#include "base/buffers.h"
#include "plan/buffer_range.h"

namespace tutti {
namespace {

Result<BlockList> list_of(const char* function, const BlockArrays& arrays, int ranks) {
    if (!arrays.counts) return null_argument(function, "the list of counts");
    const auto n = static_cast<std::size_t>(ranks);
    BlockList list;
    list.counts = {arrays.counts, n};
    if (arrays.displacements) list.displacements = {arrays.displacements, n};
    return list;
}

// In an alltoallv in place, the block from a rank replaces the block to that rank.
Result<> check_in_place(const char* function, const Call& call) {
    if (call.collective != Collective::alltoall || !call.uneven) return {};
    const CallBlocks blocks = blocks_of(call);
    const BlockLayout &in = blocks.input, &out = blocks.output;
    for (std::size_t i = 0; i < in.counts.size(); ++i) {
        const bool alike = in.counts[i] == out.counts[i] &&
                           (in.counts[i] == 0 || in.displacements[i] == out.displacements[i]);
        if (!alike)
            return fail(Code::invalid,
                        "{}: input and output are the same buffer, but the block for rank {} has "
                        "{} elements at {}, and the block from rank {} has {} at {}",
                        function, i, in.counts[i], in.displacements[i], i, out.counts[i],
                        out.displacements[i])
                .advice("use separate buffers, or the same counts and displacements for both");
    }
    return {};
}

Result<> check_overlap(const char* function, const Call& call, const BufferRange& in_range,
                       const BufferRange& out_range, const void* in, const void* out) {
    const std::size_t bytes = dtype_bytes(call.dtype);
    const auto* a = static_cast<const std::byte*>(in);
    const auto* b = static_cast<const std::byte*>(out);
    const std::size_t a_bytes = in_range.length * bytes, b_bytes = out_range.length * bytes;
    if (a_bytes == 0 || b_bytes == 0 || are_apart(a, a_bytes, b, b_bytes)) return {};
    // In place: the input and output of the rank's own block, or of the whole, are the same memory.
    const std::size_t a_own = in_range.row && !out_range.row ? in_range.own * bytes : 0;
    const std::size_t b_own = out_range.row && !in_range.row ? out_range.own * bytes : 0;
    if (a + a_own == b + b_own) return check_in_place(function, call);
    return fail(Code::invalid,
                "{}: the input ({} bytes) and the output ({} bytes) overlap, {} bytes apart, and "
                "are "
                "not in place",
                function, a_bytes, b_bytes, std::abs(b - a))
        .advice("use separate buffers, or {}",
                in_range.row == out_range.row ? "the same pointer for both"
                : out_range.row               ? "as input this rank's own block of the output"
                                              : "as output this rank's own block of the input");
}

// If the rank has both buffers, an uneven call gives the length of its own block twice.
Result<> check_own_block(const char* function, const Communicator& comm, const Call& call) {
    if (!call.uneven || comm.rank() != call.root) return {};
    const BlockList& list = call.collective == Collective::gather ? call.output : call.input;
    if (call.collective != Collective::gather && call.collective != Collective::scatter) return {};
    const std::size_t listed = list.counts[static_cast<std::size_t>(call.root)];
    if (listed == call.count) return {};
    return fail(Code::invalid,
                "{}: the root's own block has {} elements, but its list of counts says {}",
                function, call.count, listed)
        .advice("make the root's count and its entry in the list of counts equal");
}

bool is_whole(const Call& call) {
    return traits_of(call.collective).cut == Cut::whole;
}

/// True for a whole buffer in place: none of its blocks can overlap a different block.
bool is_in_place(const Call& call, const void* in, const void* out) {
    return in == out && in && is_whole(call);
}

Result<> check_two(const char* function, const Communicator& comm, const Call& call, const void* in,
                   const void* out) {
    const bool whole = is_whole(call);
    if (call.collective == Collective::barrier || (whole && call.count == 0)) return {};
    // Check the lengths first: lengths beyond any memory would overflow below.
    constexpr std::size_t surely_fits = std::size_t{1} << 40;
    if (!whole || call.count > surely_fits) TUTTI_TRY(comm.planner().check(call, -1));
    const BufferRange in_range = range_of(call, comm.rank(), comm.size(), Space::input);
    const BufferRange out_range = range_of(call, comm.rank(), comm.size(), Space::output);
    if (in_range.used && in_range.length > 0 && !in)
        return fail(Code::invalid, "{}: the input is NULL but count is {}", function,
                    in_range.length)
            .advice("pass a buffer of {} elements, or 0 as count", in_range.length);
    if (out_range.used && out_range.length > 0 && !out)
        return fail(Code::invalid, "{}: the output is NULL but count is {}", function,
                    out_range.length)
            .advice("pass a buffer of {} elements, or 0 as count", out_range.length);
    if (!in_range.used || !out_range.used || dtype_bytes(call.dtype) == 0) return {};
    return check_overlap(function, call, in_range, out_range, in, out);
}

}  // namespace

Result<tutti_call_opts> read_opts(const char* function, const tutti_call_opts* opts) {
    tutti_call_opts read = TUTTI_CALL_OPTS_INIT;
    if (!opts) return read;
    if (opts->struct_size == 0)
        return fail(Code::invalid, "{}: opts.struct_size is 0", function)
            .advice("initialise the options with TUTTI_CALL_OPTS_INIT");
    std::memcpy(&read, opts, std::min(opts->struct_size, sizeof read));
    if (read.wire_dtype >= 0)
        return fail(Code::unsupported,
                    "{}: opts.wire_dtype is {}, but this version sends data in its own dtype only",
                    function, read.wire_dtype)
            .advice("set opts.wire_dtype to -1");
    return read;
}

// Takes the options that belong to the call itself: its algorithm and its name.
Result<> take_opts(const char* function, const tutti_call_opts& opts, Call& call) {
    if (opts.algorithm) call.algorithm = opts.algorithm;
    if (!opts.name) return {};
    const auto name = CallName::of(opts.name);
    if (!name)
        return fail(Code::invalid, "{}: opts.name '{}' is not a valid name", function, opts.name)
            .advice("give at most {} letters, digits and blanks", CallName::longest);
    call.name = *name;
    return {};
}

Call plain_call(Collective collective, std::size_t count, tutti_dtype dtype, tutti_op op) {
    return rooted_call(collective, count, dtype, /*root=*/0, op);
}

Call rooted_call(Collective name, std::size_t count, tutti_dtype dtype, int root, tutti_op op) {
    return {.collective = name, .count = count, .dtype = Dtype(dtype), .op = Op(op), .root = root};
}

Result<Call> allgatherv_call(const char* function, tutti_comm* comm, const BlockArrays& out,
                             tutti_dtype dtype) {
    if (!comm) return null_argument(function, "comm");
    Call call = plain_call(Collective::allgather, 0, dtype);
    call.uneven = true;
    TUTTI_ASSIGN(call.output, list_of(function, out, comm->impl->size()));
    call.count = call.output.counts[static_cast<std::size_t>(comm->impl->rank())];
    return call;
}

Result<Call> reduce_scatterv_call(const char* function, tutti_comm* comm, const BlockArrays& in,
                                  tutti_dtype dtype, tutti_op op) {
    if (!comm) return null_argument(function, "comm");
    Call call = plain_call(Collective::reduce_scatter, 0, dtype, op);
    call.uneven = true;
    TUTTI_ASSIGN(call.input, list_of(function, in, comm->impl->size()));
    call.count = call.input.counts[static_cast<std::size_t>(comm->impl->rank())];
    return call;
}

Result<Call> rootedv_call(const char* function, tutti_comm* comm, Collective collective,
                          std::size_t own_count, const BlockArrays& at_root, tutti_dtype dtype,
                          int root) {
    if (!comm) return null_argument(function, "comm");
    Call call = rooted_call(collective, own_count, dtype, root);
    call.uneven = true;
    if (comm->impl->rank() == root) {
        BlockList& list = collective == Collective::gather ? call.output : call.input;
        TUTTI_ASSIGN(list, list_of(function, at_root, comm->impl->size()));
    }
    TUTTI_TRY(check_own_block(function, *comm->impl, call));
    return call;
}

Result<Call> alltoallv_call(const char* function, tutti_comm* comm, const BlockArrays& in,
                            const BlockArrays& out, tutti_dtype dtype) {
    if (!comm) return null_argument(function, "comm");
    Call call = plain_call(Collective::alltoall, 0, dtype);
    call.uneven = true;
    TUTTI_ASSIGN(call.input, list_of(function, in, comm->impl->size()));
    TUTTI_ASSIGN(call.output, list_of(function, out, comm->impl->size()));
    const auto me = static_cast<std::size_t>(comm->impl->rank());
    if (call.input.counts[me] != call.output.counts[me])
        return fail(Code::invalid,
                    "{}: this rank's block for itself has {} elements in the input, but {} in the "
                    "output",
                    function, call.input.counts[me], call.output.counts[me])
            .advice("give the same count at index {} of both lists", me);
    return call;
}

Result<> check_buffers(const char* function, const Communicator& comm, const Call& call,
                       const void* in, const void* out) {
    return is_in_place(call, in, out) ? Result<>{} : check_two(function, comm, call, in, out);
}

Result<> call_blocking(const char* function, tutti_comm* comm, const Call& call, const void* in,
                       void* out) {
    if (!comm) return null_argument(function, "comm");
    TUTTI_TRY(check_buffers(function, *comm->impl, call, in, out));
    return comm->impl->calls().run(call, in, out);
}

Result<> call_start(const char* function, tutti_comm* comm, Result<Call> call, const void* in,
                    void* out, const tutti_call_opts* opts, tutti_request** request) {
    if (!comm) return null_argument(function, "comm");
    if (!request) return null_argument(function, "request");
    *request = nullptr;
    if (!call) return tl::unexpected(call.error());
    TUTTI_TRY(check_buffers(function, *comm->impl, *call, in, out));
    return start_checked(function, comm, *call, in, out, opts, request);
}

Result<> start_checked(const char* function, tutti_comm* comm, const Call& checked, const void* in,
                       void* out, const tutti_call_opts* opts, tutti_request** request) {
    Call call = checked;
    TUTTI_ASSIGN(const tutti_call_opts o, read_opts(function, opts));
    TUTTI_TRY(take_opts(function, o, call));
    TUTTI_ASSIGN(auto started,
                 comm->impl->calls().start(call, o.stream, o.timeout_ms, in, out, o.device_stream));
    *request = to_c(started.release());
    return {};
}

Result<> call_plan(const char* function, tutti_comm* comm, Result<Call> call,
                   const tutti_call_opts* opts, tutti_plan** plan) {
    if (!comm) return null_argument(function, "comm");
    if (!plan) return null_argument(function, "plan");
    *plan = nullptr;
    if (!call) return tl::unexpected(call.error());
    TUTTI_ASSIGN(const tutti_call_opts o, read_opts(function, opts));
    TUTTI_TRY(take_opts(function, o, *call));
    TUTTI_ASSIGN(auto made, comm->impl->calls().make_plan(*call, o.stream));
    made->queue = o.device_stream;
    made->timeout_ms = o.timeout_ms;
    *plan = new tutti_plan{comm->impl, std::move(made)};
    return {};
}

}  // namespace tutti
