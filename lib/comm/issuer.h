// From a collective call to a request that has its place in the order: finds or binds the plan,
// submits it, and drives it or hands it over.
#pragma once

#include <memory>

#include "comm/admission.h"
#include "comm/progress.h"

namespace tutti {

struct OffloadCall;

/// The issuing thread's.
class Issuer {
public:
    Issuer(Core& core, ProgressEngine& progress)
        : core_(core), progress_(progress), admission_(core) {}

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

    // For what the library calls itself.
    /// As run() for the library's own buffers, which are the host's: no driver is asked, which may
    /// be broken where nobody needs it.
    Result<> run_own(const Call& call, const void* in, void* out);
    /// A barrier with that name: MISMATCH unless every rank has come to the same one.
    Result<> begin(std::string_view name);
    /// Whether every rank says so.
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

    Core& core_;
    ProgressEngine& progress_;
    Admission admission_;
    uint64_t plans_made_ = 0;  // of those that name no stream
};

}  // namespace tutti
