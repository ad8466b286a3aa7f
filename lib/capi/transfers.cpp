// Sends and receives at the C boundary.
#include <array>
#include <cstddef>
#include <limits>

#include "capi/calls.h"

using namespace tutti;

namespace {

static_assert(sizeof(Received) == sizeof(tutti_recv_status));
static_assert(offsetof(Received, count) == offsetof(tutti_recv_status, count));

/// The arguments of a send or receive in C.
struct Asked {
    bool sends = false;
    const void* memory = nullptr;
    std::size_t count = 0;
    tutti_dtype dtype = 0;
    int peer = 0;
    int tag = 0;
    tutti_recv_status* status = nullptr;
};

/// The message's length in bytes; an error if there is no such dtype.
Result<std::size_t> length_of(const char* function, const Asked& asked) {
    const std::size_t element_bytes = dtype_bytes(static_cast<Dtype>(asked.dtype));
    if (asked.dtype < 0 || element_bytes == 0)
        return fail(Code::invalid, "{}: unknown dtype {}", function, asked.dtype)
            .advice("give a dtype from 0 to {} (tutti_dtype_name names them)", dtype_count - 1);
    if (asked.count > std::numeric_limits<std::ptrdiff_t>::max() / element_bytes)
        return fail(Code::invalid, "{}: {} elements of {} are more bytes than memory can hold",
                    function, asked.count, dtype_name(static_cast<Dtype>(asked.dtype)))
            .advice("give the count in elements, not more than the buffer holds");
    return asked.count * element_bytes;
}

/// `unsupported` while this thread estimates the time of its calls.
Result<> may_transfer(const char* function, const tutti_comm* comm) {
    if (!comm->impl->estimate().is_of_this_thread()) [[likely]]
        return {};
    return wrap(Estimate::refusal("messages between two ranks").value(), function);
}

Result<bool> on_device(const tutti_comm* comm, const Asked& asked) {
    if (asked.count == 0) return false;
    return comm->impl->offload().owns(asked.memory);
}

Result<> fill(const char* function, Transfer& transfer, const Asked& asked) {
    TUTTI_ASSIGN(transfer.bytes, length_of(function, asked));
    transfer.sends = asked.sends;
    // A send only reads; one pointer serves both.
    transfer.memory = static_cast<std::byte*>(const_cast<void*>(asked.memory));
    transfer.dtype = static_cast<Dtype>(asked.dtype);
    transfer.peer = asked.peer;
    transfer.user_tag = asked.tag;
    transfer.into = reinterpret_cast<Received*>(asked.status);
    return {};
}

Result<OffloadMessage> to_message(const char* function, const Asked& asked) {
    OffloadMessage made;
    TUTTI_ASSIGN(made.bytes, length_of(function, asked));
    made.sends = asked.sends;
    made.peer = asked.peer;
    made.memory = static_cast<std::byte*>(const_cast<void*>(asked.memory));
    made.tag = asked.tag;
    made.dtype = static_cast<Dtype>(asked.dtype);
    made.into = reinterpret_cast<Received*>(asked.status);
    return made;
}

Result<std::unique_ptr<Request>> start(const char* function, tutti_comm* comm, const Asked& asked,
                                       int64_t timeout_ms, void* device_stream = nullptr) {
    TUTTI_ASSIGN(const bool device, on_device(comm, asked));
    if (device) {
        TUTTI_ASSIGN(const OffloadMessage one, to_message(function, asked));
        return comm->impl->offload().start(std::vector{one}, timeout_ms, device_stream);
    }
    auto transfer = std::make_unique<Transfer>();
    TUTTI_TRY(fill(function, *transfer, asked));
    return comm->impl->messages().start(std::move(transfer), timeout_ms);
}

Result<> add_to_group(const char* function, tutti_comm* comm, const Asked& asked) {
    TUTTI_ASSIGN(const bool device, on_device(comm, asked));
    if (device) {
        TUTTI_ASSIGN(const OffloadMessage one, to_message(function, asked));
        comm->device_group.push_back(one);
        return {};
    }
    // Make the request's place first: a started request must be kept.
    comm->group.emplace_back();
    auto request = start(function, comm, asked, -1);
    if (!request) {
        comm->group.pop_back();
        return tl::unexpected(std::move(request).error());
    }
    comm->group.back() = std::move(*request);
    return {};
}

/// Waits for all requests; returns the first error.
Result<> wait_all(tutti_comm* comm, std::vector<std::unique_ptr<Request>> requests) {
    std::optional<Error> first;
    for (const auto& request : requests) {
        if (!request) continue;  // there was no memory to start it
        comm->impl->progress().wait(*request, -1);
        const Code code = request->code.load(std::memory_order_acquire);
        if (code != Code::ok && !first) first = std::move(request->error);
    }
    if (first) return tl::unexpected(std::move(*first));
    return {};
}

tutti_status blocking(const char* function, tutti_comm* comm, const Asked& asked) {
    return guard(comm, [&]() -> Result<> {
        if (!comm) return null_argument(function, "comm");
        TUTTI_TRY(may_transfer(function, comm));
        if (comm->group_depth > 0) return add_to_group(function, comm, asked);
        TUTTI_ASSIGN(const bool device, on_device(comm, asked));
        if (device) {
            TUTTI_ASSIGN(const OffloadMessage one, to_message(function, asked));
            return comm->impl->offload().run(std::vector{one});
        }
        Transfer transfer;
        TUTTI_TRY(fill(function, transfer, asked));
        return comm->impl->messages().run(transfer);
    });
}

tutti_status nonblocking(const char* function, tutti_comm* comm, const Asked& asked,
                         const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&]() -> Result<> {
        if (!comm) return null_argument(function, "comm");
        if (!request) return null_argument(function, "request");
        *request = nullptr;
        TUTTI_TRY(may_transfer(function, comm));
        TUTTI_ASSIGN(const tutti_call_opts read, read_opts(function, opts));
        TUTTI_ASSIGN(auto started,
                     start(function, comm, asked, read.timeout_ms, read.device_stream));
        *request = to_c(started.release());
        return {};
    });
}

/// Checks one of several transfers that belong together, as no transfer may start if another one is
/// invalid.
Result<> check(const char* function, tutti_comm* comm, const Asked& asked) {
    TUTTI_ASSIGN(const bool device, on_device(comm, asked));
    if (device) return {};  // Offload checks all device transfers at launch
    Transfer transfer;
    TUTTI_TRY(fill(function, transfer, asked));
    return comm->impl->messages().check(transfer);
}

/// Transfers on device memory are launched as one group.
Result<> both(const char* function, tutti_comm* comm, const Asked& receive, const Asked& send) {
    TUTTI_ASSIGN(const bool to_device, on_device(comm, receive));
    TUTTI_ASSIGN(const bool from_device, on_device(comm, send));
    if (to_device || from_device) {
        TUTTI_ASSIGN(const OffloadMessage in, to_message(function, receive));
        TUTTI_ASSIGN(const OffloadMessage out, to_message(function, send));
        return comm->impl->offload().run(std::vector{in, out});
    }
    // Allocate first: a started transfer must be kept.
    std::array<std::unique_ptr<Transfer>, 2> made;
    for (auto& one : made) one = std::make_unique<Transfer>();
    TUTTI_TRY(fill(function, *made[0], receive));
    TUTTI_TRY(fill(function, *made[1], send));
    std::vector<std::unique_ptr<Request>> started;
    started.reserve(made.size());
    for (auto& transfer : made) {
        auto one = comm->impl->messages().start(std::move(transfer), -1);
        if (!one) {
            // The communicator has failed, and the started transfers with it.
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
    return guard(comm, [&]() -> Result<> {
        if (!comm) return null_argument(function, "comm");
        TUTTI_TRY(may_transfer(function, comm));
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
        TUTTI_TRY(check(function, comm, receive));
        TUTTI_TRY(check(function, comm, send));
        if (comm->group_depth == 0) return both(function, comm, receive, send);
        TUTTI_TRY(add_to_group(function, comm, receive));
        return add_to_group(function, comm, send);
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
    return guard(comm, [&]() -> Result<> {
        if (!comm) return null_argument("tutti_group_start", "comm");
        ++comm->group_depth;
        return {};
    });
}

tutti_status tutti_group_end(tutti_comm* comm) {
    return guard(comm, [&]() -> Result<> {
        TUTTI_TRY(check_comm("tutti_group_end", comm));
        TUTTI_TRY(comm->impl->may_call());
        if (comm->group_depth == 0)
            return fail(Code::invalid, "tutti_group_end: no group is open on this communicator")
                .advice("call tutti_group_start before the calls of the group");
        if (--comm->group_depth > 0) return {};
        const auto on_devices = std::exchange(comm->device_group, {});
        const auto launched =
            on_devices.empty() ? Result<>() : comm->impl->offload().run(on_devices);
        const auto waited = wait_all(comm, std::exchange(comm->group, {}));
        return launched ? waited : launched;
    });
}

}  // extern "C"
