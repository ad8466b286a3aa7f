// Requests and runs of plans at the C boundary.
#include <memory>

#include "capi/calls.h"

namespace {

using tutti::Code;
using tutti::Result;

// Frees a request that is over, and returns its status.
tutti_status take(tutti_request** handle) {
    const std::unique_ptr<tutti::Request> request(tutti::from_c(*handle));
    *handle = nullptr;
    const Code code = request->code.load(std::memory_order_acquire);
    if (code == Code::ok) return TUTTI_OK;
    return tutti::keep(tutti::on_rank(request->keep->rank(), request->error));
}

// For an allreduce_multi, `in` is the list of its inputs.
Result<> check_run(const char* function, const tutti_plan& plan, const void* in, void* out) {
    const tutti::Call& call = plan.impl->call;
    if (call.inputs == 0) return tutti::check_buffers(function, *plan.comm, call, in, out);
    return tutti::check_inputs(function, *plan.comm, call, static_cast<const void* const*>(in),
                               out);
}

}  // namespace

extern "C" {

tutti_status tutti_wait(tutti_request** request, int64_t timeout_ms) {
    if (!request || !*request) return TUTTI_OK;
    bool done = false;
    const tutti::Request* const waited = tutti::from_c(*request);
    const tutti_status status = tutti::guard(waited, [&]() -> Result<> {
        tutti::Request& r = *tutti::from_c(*request);
        if (auto home = r.keep->forked(); !home) {
            *request = nullptr;  // the parent's: leave it
            return home;
        }
        if (timeout_ms != 0) TUTTI_TRY(r.keep->progress().may_wait(r));
        done = r.keep->progress().wait(r, timeout_ms);
        if (done || timeout_ms == 0) return {};
        return tutti::fail(Code::timeout,
                           "tutti_wait: the operation is not done after {} ms; it goes on",
                           timeout_ms)
            .advice("wait for the same request again, or give a longer timeout");
    });
    if (done) return take(request);
    return status == TUTTI_OK ? TUTTI_IN_PROGRESS : status;
}

tutti_status tutti_test(tutti_request** request) {
    return tutti_wait(request, 0);
}

tutti_status tutti_request_on_complete(tutti_request* request, void (*fn)(tutti_status, void* user),
                                       void* user) {
    return tutti::guard(tutti::from_c(request), [&]() -> Result<> {
        if (!request) return tutti::null_argument("tutti_request_on_complete", "request");
        if (!fn) return tutti::null_argument("tutti_request_on_complete", "fn");
        TUTTI_TRY(tutti::from_c(request)->keep->forked());
        if (!tutti::from_c(request)->completion.set_callback(
                [fn, user](Code code) { fn(tutti::to_c(code), user); }))
            return tutti::fail(Code::invalid,
                               "tutti_request_on_complete: the request has a callback already")
                .advice("set one callback for each request");
        return {};
    });
}

tutti_status tutti_request_fd(tutti_request* request, int* fd) {
    return tutti::guard(tutti::from_c(request), [&]() -> Result<> {
        if (!request) return tutti::null_argument("tutti_request_fd", "request");
        if (!fd) return tutti::null_argument("tutti_request_fd", "fd");
        TUTTI_TRY(tutti::from_c(request)->keep->forked());
        TUTTI_ASSIGN(*fd, tutti::from_c(request)->completion.event_fd());
        return {};
    });
}

tutti_status tutti_plan_start(tutti_plan* plan, const void* in, void* out,
                              tutti_request** request) {
    return tutti::guard(plan, [&]() -> Result<> {
        if (!plan) return tutti::null_argument("tutti_plan_start", "plan");
        if (!request) return tutti::null_argument("tutti_plan_start", "request");
        *request = nullptr;
        TUTTI_TRY(check_run("tutti_plan_start", *plan, in, out));
        TUTTI_ASSIGN(auto started, plan->comm->calls().start(*plan->impl, in, out));
        *request = tutti::to_c(started.release());
        return {};
    });
}

tutti_status tutti_plan_run(tutti_plan* plan, const void* in, void* out) {
    return tutti::guard(plan, [&]() -> Result<> {
        if (!plan) return tutti::null_argument("tutti_plan_run", "plan");
        TUTTI_TRY(check_run("tutti_plan_run", *plan, in, out));
        return plan->comm->calls().run(*plan->impl, in, out);
    });
}

void tutti_plan_destroy(tutti_plan* plan) {
    if (!plan || !plan->comm->forked()) return;  // the parent's: leave it
    tutti::LaunchBatch& launches = tutti::launch_batch();
    if (launches.gathering() && plan->impl->busy_anywhere())
        return launches.after_close([plan] { tutti_plan_destroy(plan); });
    plan->comm->progress().wait_for_last_run(*plan->impl);
    delete plan;
}

}  // extern "C"
