// Turns a collective call into a request: finds or binds the plan, submits the request in the order
// of operations, and drives it or hands it over to another thread.
#pragma once

#include <memory>

#include "comm/admission.h"
#include "comm/progress.h"

namespace tutti {

struct OffloadCall;

/// For the issuing thread only.
class Issuer {
public:
    Issuer(Core& core, ProgressEngine& progress)
        : core_(core), progress_(progress), admission_(core) {}

    /// `invalid` once this rank has left, as every call that needs the job.
    Result<> may_start() const { return core_.may_start(); }

    // While this thread estimates, the calls below add their predicted times instead.
    /// Blocking: returns when the operation is over; on an accelerator's memory, when it is on the
    /// queue. The next call returns an error that such an operation ended with later.
    Result<> run(const Call& call, const void* in, void* out);
    /// stream < 0: round robin. queue: the accelerator's, nullptr for the communicator's.
    Result<std::unique_ptr<Request>> start(const Call& call, int stream, int64_t timeout_ms,
                                           const void* in, void* out, void* queue = nullptr);

    /// Persistent plans belong to the caller.
    Result<std::unique_ptr<Plan>> make_plan(const Call& call, int stream);
    Result<> run(Plan& plan, const void* in, void* out);
    Result<std::unique_ptr<Request>> start(Plan& plan, const void* in, void* out);

    // Calls that the library itself makes.
    /// As run(), for the library's own buffers, which are host memory. Asks no driver, so that a
    /// broken driver does not harm a program that does not use it.
    Result<> run_own(const Call& call, const void* in, void* out);
    /// A barrier with that name: MISMATCH unless every rank has come to the same one.
    Result<> begin(std::string_view name);
    /// True if `mine` is true on every rank.
    Result<bool> all_agree(bool mine);

    // For the implementation of Offload.
    Admission& admission() { return admission_; }
    /// The stream's plan for a call that was bound before, or a new one.
    Result<Plan*> plan_for(const Call& call, uint32_t stream, int64_t timeout_ms);
    Result<std::unique_ptr<Plan>> bind_plan(const Call& call, uint32_t stream, int64_t timeout_ms);

private:
    Result<Plan*> bind_and_keep(const Call& call, uint32_t stream, int64_t timeout_ms);
    Result<Plan*> host_plan(OffloadCall& asked, uint32_t stream, int64_t timeout_ms);
    Result<std::unique_ptr<Plan>> make_plan_or_say(const Call& call, uint32_t stream,
                                                   int64_t timeout_ms);
    Result<> run_on_host(Plan& plan, int64_t timeout_ms, const void* in, void* out);
    Result<std::unique_ptr<Request>> start_on_host(Plan& plan, const OffloadCall& call);
    Result<> wait_until_free(Plan& plan);
    Result<bool> offloaded(OffloadCall& run);
    Result<bool> new_driver_takes(OffloadCall& asked);
    Result<> estimate(OffloadCall& asked);
    std::unique_ptr<Request> estimated_request() const;

    Core& core_;
    ProgressEngine& progress_;
    Admission admission_;
    uint64_t plans_made_ = 0;  // plans for which the caller named no stream
};

}  // namespace tutti
