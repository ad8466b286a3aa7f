// Sends and receives at the C boundary.
#include <cstddef>
#include <limits>

#include "capi/calls.h"

using namespace tutti;

namespace {

static_assert(sizeof(Received) == sizeof(tutti_recv_status));
static_assert(offsetof(Received, count) == offsetof(tutti_recv_status, count));

/// What the C functions say of a transfer.
struct Asked {
    bool sends = false;
    const void* memory = nullptr;
    std::size_t count = 0;
    tutti_dtype dtype = 0;
    int peer = 0;
    int tag = 0;
    tutti_recv_status* status = nullptr;
};

Result<> fill(const char* function, Transfer& transfer, const Asked& asked) {
    const auto dtype = static_cast<Dtype>(asked.dtype);
    const std::size_t element_bytes = dtype_bytes(dtype);
    if (asked.dtype < 0 || element_bytes == 0)
        return fail(Code::invalid, "{}: {} is no dtype (0 … {})", function, asked.dtype,
                    dtype_count - 1);
    if (asked.count > std::numeric_limits<std::ptrdiff_t>::max() / element_bytes)
        return fail(Code::invalid, "{}: {} elements of {} are more bytes than memory can hold",
                    function, asked.count, dtype_name(dtype));
    if (asked.count > 0)
        if (const device::MemoryKind kind = device::memory_of(asked.memory); kind.on_device())
            return fail(Code::unsupported,
                        "{}: the buffer is {}: messages are for host memory, collectives for both",
                        function, device::describe(kind));
    transfer.sends = asked.sends;
    // A send only reads; one pointer serves both.
    transfer.memory = static_cast<std::byte*>(const_cast<void*>(asked.memory));
    transfer.bytes = asked.count * element_bytes;
    transfer.dtype = dtype;
    transfer.peer = asked.peer;
    transfer.user_tag = asked.tag;
    transfer.into = reinterpret_cast<Received*>(asked.status);
    return {};
}

Result<std::unique_ptr<Request>> start(const char* function, tutti_comm* comm, const Asked& asked,
                                       int64_t timeout_ms) {
    auto transfer = std::make_unique<Transfer>();
    TUTTI_TRY(fill(function, *transfer, asked));
    return comm->impl->start(std::move(transfer), timeout_ms);
}

Result<> add_to_group(const char* function, tutti_comm* comm, const Asked& asked) {
    TUTTI_ASSIGN(auto request, start(function, comm, asked, -1));
    comm->group.push_back(std::move(request));
    return {};
}

/// Waits for all of them; the first error.
Result<> wait_all(tutti_comm* comm, std::vector<std::unique_ptr<Request>> requests) {
    std::optional<Error> first;
    for (const auto& request : requests) {
        comm->impl->wait(*request, -1);
        const Code code = request->code.load(std::memory_order_acquire);
        if (code != Code::ok && !first) first = request->error;
    }
    if (first) return tl::unexpected(std::move(*first));
    return {};
}

tutti_status blocking(const char* function, tutti_comm* comm, const Asked& asked) {
    return guard([&]() -> Result<> {
        if (!comm) return null_argument(function, "comm");
        if (comm->group_depth > 0) return add_to_group(function, comm, asked);
        Transfer transfer;
        TUTTI_TRY(fill(function, transfer, asked));
        return comm->impl->run(transfer);
    });
}

tutti_status nonblocking(const char* function, tutti_comm* comm, const Asked& asked,
                         const tutti_call_opts* opts, tutti_request** request) {
    return guard([&]() -> Result<> {
        if (!comm) return null_argument(function, "comm");
        if (!request) return null_argument(function, "request");
        *request = nullptr;
        TUTTI_ASSIGN(const tutti_call_opts read, read_opts(function, opts));
        TUTTI_ASSIGN(auto started, start(function, comm, asked, read.timeout_ms));
        *request = to_c(started.release());
        return {};
    });
}

/// Whatever may be wrong with either is found before the first one starts.
Result<> both(const char* function, tutti_comm* comm, const Asked& receive, const Asked& send) {
    for (const Asked* asked : {&receive, &send}) {
        Transfer transfer;
        TUTTI_TRY(fill(function, transfer, *asked));
        TUTTI_TRY(comm->impl->check(transfer));
    }
    std::vector<std::unique_ptr<Request>> started;
    for (const Asked* asked : {&receive, &send}) {
        auto one = start(function, comm, *asked, -1);
        if (!one) {
            // The communicator has failed, and what was started with it.
            (void)wait_all(comm, std::move(started));
            return tl::unexpected(std::move(one).error());
        }
        started.push_back(std::move(*one));
    }
    return wait_all(comm, std::move(started));
}

}  // namespace

extern "C" {

tutti_status tutti_send(tutti_comm* comm, const void* buf, size_t count, tutti_dtype dtype,
                        int dest, int tag) {
    return blocking(
        "tutti_send", comm,
        {.sends = true, .memory = buf, .count = count, .dtype = dtype, .peer = dest, .tag = tag});
}

tutti_status tutti_recv(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype, int source,
                        int tag, tutti_recv_status* status) {
    return blocking("tutti_recv", comm,
                    {.memory = buf,
                     .count = count,
                     .dtype = dtype,
                     .peer = source,
                     .tag = tag,
                     .status = status});
}

tutti_status tutti_sendrecv(tutti_comm* comm, const void* send_buf, size_t send_count, int dest,
                            int send_tag, void* recv_buf, size_t recv_count, int source,
                            int recv_tag, tutti_dtype dtype, tutti_recv_status* status) {
    const char* const function = "tutti_sendrecv";
    return guard([&]() -> Result<> {
        if (!comm) return null_argument(function, "comm");
        const Asked receive{.memory = recv_buf,
                            .count = recv_count,
                            .dtype = dtype,
                            .peer = source,
                            .tag = recv_tag,
                            .status = status};
        const Asked send{.sends = true,
                         .memory = send_buf,
                         .count = send_count,
                         .dtype = dtype,
                         .peer = dest,
                         .tag = send_tag};
        if (comm->group_depth > 0) {
            TUTTI_TRY(add_to_group(function, comm, receive));
            return add_to_group(function, comm, send);
        }
        return both(function, comm, receive, send);
    });
}

tutti_status tutti_isend(tutti_comm* comm, const void* buf, size_t count, tutti_dtype dtype,
                         int dest, int tag, const tutti_call_opts* opts, tutti_request** request) {
    return nonblocking(
        "tutti_isend", comm,
        {.sends = true, .memory = buf, .count = count, .dtype = dtype, .peer = dest, .tag = tag},
        opts, request);
}

tutti_status tutti_irecv(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype, int source,
                         int tag, tutti_recv_status* status, const tutti_call_opts* opts,
                         tutti_request** request) {
    return nonblocking("tutti_irecv", comm,
                       {.memory = buf,
                        .count = count,
                        .dtype = dtype,
                        .peer = source,
                        .tag = tag,
                        .status = status},
                       opts, request);
}

tutti_status tutti_group_start(tutti_comm* comm) {
    return guard([&]() -> Result<> {
        if (!comm) return null_argument("tutti_group_start", "comm");
        ++comm->group_depth;
        return {};
    });
}

tutti_status tutti_group_end(tutti_comm* comm) {
    return guard([&]() -> Result<> {
        if (!comm) return null_argument("tutti_group_end", "comm");
        if (comm->group_depth == 0)
            return fail(Code::invalid, "tutti_group_end: there was no tutti_group_start");
        if (--comm->group_depth > 0) return {};
        return wait_all(comm, std::exchange(comm->group, {}));
    });
}

}  // extern "C"
