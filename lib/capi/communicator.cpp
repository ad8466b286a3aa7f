// Communicators and the calls on them, at the C boundary.
#include <algorithm>
#include <cstring>

#include "capi/boundary.h"

namespace {

using tutti::Call;
using tutti::Code;
using tutti::Collective;
using tutti::Result;

Call allreduce_call(size_t count, tutti_dtype dtype, tutti_op op) {
    Call call;
    call.collective = Collective::allreduce;
    call.count = count;
    call.dtype = static_cast<tutti::Dtype>(dtype);
    call.op = static_cast<tutti::Op>(op);
    return call;
}

Call broadcast_call(size_t count, tutti_dtype dtype, int root) {
    Call call;
    call.collective = Collective::broadcast;
    call.count = count;
    call.dtype = static_cast<tutti::Dtype>(dtype);
    call.root = root;
    return call;
}

Call barrier_call() {
    Call call;
    call.collective = Collective::barrier;
    return call;
}

Result<> check_buffers(const char* function, const void* in, const void* out, size_t count) {
    if (count == 0) return {};
    if (!in)
        return tutti::fail(Code::invalid, "{}: the input is NULL but count is {}", function, count);
    if (!out)
        return tutti::fail(Code::invalid, "{}: the output is NULL but count is {}", function,
                           count);
    return {};
}

Result<tutti_call_opts> read_opts(const char* function, const tutti_call_opts* opts) {
    tutti_call_opts read = TUTTI_CALL_OPTS_INIT;
    if (!opts) return read;
    if (opts->struct_size == 0)
        return tutti::fail(Code::invalid,
                           "{}: opts.struct_size is 0: start from TUTTI_CALL_OPTS_INIT", function);
    std::memcpy(&read, opts, std::min(opts->struct_size, sizeof read));
    if (read.device_stream)
        return tutti::fail(Code::unsupported,
                           "{}: opts.device_stream is set, but this build has no device library: "
                           "host memory only",
                           function);
    if (read.wire_dtype >= 0)
        return tutti::fail(Code::unsupported,
                           "{}: opts.wire_dtype is set, but this version sends data as it is",
                           function);
    return read;
}

Result<> call_blocking(const char* function, tutti_comm* comm, const Call& call, const void* in,
                       void* out) {
    if (!comm) return tutti::null_argument(function, "comm");
    TUTTI_TRY(check_buffers(function, in, out, call.count));
    return comm->impl->run(call, in, out);
}

Result<> call_start(const char* function, tutti_comm* comm, Call call, const void* in, void* out,
                    const tutti_call_opts* opts, tutti_request** request) {
    if (!comm) return tutti::null_argument(function, "comm");
    if (!request) return tutti::null_argument(function, "request");
    *request = nullptr;
    TUTTI_TRY(check_buffers(function, in, out, call.count));
    TUTTI_ASSIGN(const tutti_call_opts o, read_opts(function, opts));
    if (o.algorithm) call.algorithm = o.algorithm;
    TUTTI_ASSIGN(auto started, comm->impl->start(call, o.stream, o.timeout_ms, in, out));
    *request = tutti::to_c(started.release());
    return {};
}

Result<> call_plan(const char* function, tutti_comm* comm, Call call, const tutti_call_opts* opts,
                   tutti_plan** plan) {
    if (!comm) return tutti::null_argument(function, "comm");
    if (!plan) return tutti::null_argument(function, "plan");
    *plan = nullptr;
    TUTTI_ASSIGN(const tutti_call_opts o, read_opts(function, opts));
    if (o.algorithm) call.algorithm = o.algorithm;
    TUTTI_ASSIGN(auto made, comm->impl->make_plan(call, o.stream));
    *plan = new tutti_plan{comm->impl, std::move(made)};
    return {};
}

Result<Collective> parse_collective(const char* function, const char* name) {
    if (!name) return tutti::null_argument(function, "collective");
    for (int c = 0; c < tutti::collective_count; ++c)
        if (tutti::collective_traits[c].name == name) return static_cast<Collective>(c);
    return tutti::fail(Code::invalid, "{}: there is no collective '{}'", function, name);
}

// The request is over: what became of it, and away with it.
tutti_status take(tutti_request** handle) {
    const std::unique_ptr<tutti::Request> request(tutti::from_c(*handle));
    *handle = nullptr;
    const Code code = request->code.load(std::memory_order_acquire);
    return code == Code::ok ? TUTTI_OK : tutti::keep(request->error);
}

}  // namespace

extern "C" {

tutti_status tutti_comm_create(const tutti_config* config, tutti_comm** comm) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_create", "comm");
        *comm = nullptr;
        tutti_config* defaults = nullptr;
        if (!config) {
            // Its error is this thread's last one already; hand the same on.
            if (const tutti_status status = tutti_config_create(&defaults); status != TUTTI_OK)
                return tutti::fail(static_cast<Code>(status), "{}", tutti_last_error());
            config = defaults;
        }
        const std::unique_ptr<tutti_config> owned(defaults);
        auto made = tutti::Communicator::create(
            config->values, config->make_store ? config->make_store(*config) : nullptr);
        if (!made) return tl::unexpected(std::move(made).error());
        *comm = new tutti_comm{std::move(*made)};
        return {};
    });
}

int tutti_comm_rank(const tutti_comm* comm) {
    return comm ? comm->impl->rank() : -1;
}
int tutti_comm_size(const tutti_comm* comm) {
    return comm ? comm->impl->size() : -1;
}

tutti_status tutti_comm_abort(tutti_comm* comm) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_abort", "comm");
        comm->impl->abort();
        return {};
    });
}

tutti_status tutti_comm_destroy(tutti_comm* comm) {
    return tutti::guard([&]() -> Result<> {
        const std::unique_ptr<tutti_comm> owned(comm);
        if (comm) comm->impl->destroy();
        return {};
    });
}

tutti_status tutti_comm_explain(tutti_comm* comm, const char* collective, size_t bytes, char* text,
                                size_t capacity) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_explain", "comm");
        if (!text || capacity == 0) return tutti::null_argument("tutti_comm_explain", "text");
        Call call;
        TUTTI_ASSIGN(call.collective, parse_collective("tutti_comm_explain", collective));
        call.count = bytes;
        const std::string words = comm->impl->explain(call);
        const size_t length = std::min(words.size(), capacity - 1);
        std::memcpy(text, words.data(), length);
        text[length] = '\0';
        return {};
    });
}

const char* tutti_comm_algorithm(tutti_comm* comm, const char* collective, size_t count,
                                 tutti_dtype dtype) {
    const char* name = nullptr;
    const tutti_status status = tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_algorithm", "comm");
        Call call;
        TUTTI_ASSIGN(call.collective, parse_collective("tutti_comm_algorithm", collective));
        call.count = count;
        call.dtype = static_cast<tutti::Dtype>(dtype);
        TUTTI_TRY(comm->impl->check(call, -1));
        TUTTI_ASSIGN(const tutti::Choice choice, comm->impl->choose(call));
        name = choice.name.data();  // catalog names are literals
        return {};
    });
    return status == TUTTI_OK ? name : nullptr;
}

tutti_status tutti_comm_dump(tutti_comm* comm, int fd) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_dump", "comm");
        return comm->impl->dump(fd);
    });
}

tutti_status tutti_allreduce(tutti_comm* comm, const void* in, void* out, size_t count,
                             tutti_dtype dtype, tutti_op op) {
    return tutti::guard([&] {
        return call_blocking("tutti_allreduce", comm, allreduce_call(count, dtype, op), in, out);
    });
}

tutti_status tutti_broadcast(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                             int root) {
    return tutti::guard([&] {
        return call_blocking("tutti_broadcast", comm, broadcast_call(count, dtype, root), buf, buf);
    });
}

tutti_status tutti_barrier(tutti_comm* comm) {
    return tutti::guard(
        [&] { return call_blocking("tutti_barrier", comm, barrier_call(), nullptr, nullptr); });
}

tutti_status tutti_iallreduce(tutti_comm* comm, const void* in, void* out, size_t count,
                              tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                              tutti_request** request) {
    return tutti::guard([&] {
        return call_start("tutti_iallreduce", comm, allreduce_call(count, dtype, op), in, out, opts,
                          request);
    });
}

tutti_status tutti_ibroadcast(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                              int root, const tutti_call_opts* opts, tutti_request** request) {
    return tutti::guard([&] {
        return call_start("tutti_ibroadcast", comm, broadcast_call(count, dtype, root), buf, buf,
                          opts, request);
    });
}

tutti_status tutti_ibarrier(tutti_comm* comm, const tutti_call_opts* opts,
                            tutti_request** request) {
    return tutti::guard([&] {
        return call_start("tutti_ibarrier", comm, barrier_call(), nullptr, nullptr, opts, request);
    });
}

tutti_status tutti_wait(tutti_request** request, int64_t timeout_ms) {
    if (!request || !*request) return TUTTI_OK;
    bool done = false;
    const tutti_status status = tutti::guard([&]() -> Result<> {
        tutti::Request& r = *tutti::from_c(*request);
        done = r.keep->wait(r, timeout_ms);
        if (done || timeout_ms == 0) return {};
        return tutti::fail(Code::timeout,
                           "tutti_wait: the operation is not done after {} ms; it goes on",
                           timeout_ms);
    });
    if (done) return take(request);
    return status == TUTTI_OK ? TUTTI_IN_PROGRESS : status;
}

tutti_status tutti_test(tutti_request** request) {
    return tutti_wait(request, 0);
}

tutti_status tutti_request_on_complete(tutti_request* request, void (*fn)(tutti_status, void* user),
                                       void* user) {
    return tutti::guard([&]() -> Result<> {
        if (!request) return tutti::null_argument("tutti_request_on_complete", "request");
        if (!fn) return tutti::null_argument("tutti_request_on_complete", "fn");
        if (!tutti::from_c(request)->completion.set_callback(
                [fn, user](Code code) { fn(tutti::to_c(code), user); }))
            return tutti::fail(Code::invalid,
                               "tutti_request_on_complete: the request has a callback already");
        return {};
    });
}

tutti_status tutti_request_fd(tutti_request* request, int* fd) {
    return tutti::guard([&]() -> Result<> {
        if (!request) return tutti::null_argument("tutti_request_fd", "request");
        if (!fd) return tutti::null_argument("tutti_request_fd", "fd");
        TUTTI_ASSIGN(*fd, tutti::from_c(request)->completion.event_fd());
        return {};
    });
}

tutti_status tutti_progress(tutti_comm* comm) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_progress", "comm");
        comm->impl->progress();
        return {};
    });
}

tutti_status tutti_progress_fd(tutti_comm* comm, int* fd) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_progress_fd", "comm");
        if (!fd) return tutti::null_argument("tutti_progress_fd", "fd");
        if (!comm->impl->manual())
            return tutti::fail(Code::unsupported,
                               "tutti_progress_fd: this communicator has a thread of its own; set "
                               "\"progress\" to \"manual\"");
        *fd = comm->impl->progress_fd();
        return {};
    });
}

tutti_status tutti_plan_allreduce(tutti_comm* comm, size_t count, tutti_dtype dtype, tutti_op op,
                                  const tutti_call_opts* opts, tutti_plan** plan) {
    return tutti::guard([&] {
        return call_plan("tutti_plan_allreduce", comm, allreduce_call(count, dtype, op), opts,
                         plan);
    });
}

tutti_status tutti_plan_broadcast(tutti_comm* comm, size_t count, tutti_dtype dtype, int root,
                                  const tutti_call_opts* opts, tutti_plan** plan) {
    return tutti::guard([&] {
        return call_plan("tutti_plan_broadcast", comm, broadcast_call(count, dtype, root), opts,
                         plan);
    });
}

tutti_status tutti_plan_barrier(tutti_comm* comm, const tutti_call_opts* opts, tutti_plan** plan) {
    return tutti::guard(
        [&] { return call_plan("tutti_plan_barrier", comm, barrier_call(), opts, plan); });
}

tutti_status tutti_plan_start(tutti_plan* plan, const void* in, void* out,
                              tutti_request** request) {
    return tutti::guard([&]() -> Result<> {
        if (!plan) return tutti::null_argument("tutti_plan_start", "plan");
        if (!request) return tutti::null_argument("tutti_plan_start", "request");
        *request = nullptr;
        TUTTI_TRY(check_buffers("tutti_plan_start", in, out, plan->impl->call.count));
        TUTTI_ASSIGN(auto started, plan->comm->start(*plan->impl, -1, in, out));
        *request = tutti::to_c(started.release());
        return {};
    });
}

tutti_status tutti_plan_run(tutti_plan* plan, const void* in, void* out) {
    return tutti::guard([&]() -> Result<> {
        if (!plan) return tutti::null_argument("tutti_plan_run", "plan");
        TUTTI_TRY(check_buffers("tutti_plan_run", in, out, plan->impl->call.count));
        return plan->comm->run(*plan->impl, in, out);
    });
}

void tutti_plan_destroy(tutti_plan* plan) {
    // A run that is still under way has a deadline; its memory must not go before it.
    while (plan && plan->impl->busy.load(std::memory_order_acquire)) plan->comm->progress();
    delete plan;
}

}  // extern "C"
