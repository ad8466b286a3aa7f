// The boundary to C: results become statuses, exceptions are caught, the last error is kept.
#pragma once

#include <memory>
#include <vector>

#include "base/catching.h"
#include "base/result.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "rendezvous/store.h"
#include "tutti/tutti.h"

struct tutti_config {
    tutti::Config values;
    std::shared_ptr<tutti::Store> (*make_store)(const tutti_config&) = nullptr;
    tutti_store_callbacks callbacks{};
    void* user = nullptr;
};

struct tutti_comm {
    std::shared_ptr<tutti::Communicator> impl;
    int group_depth = 0;
    std::vector<std::unique_ptr<tutti::Request>> group;  // started and not waited for
    std::vector<tutti::OffloadMessage> device_group;     // launched together at its end
};

struct tutti_plan {
    std::shared_ptr<tutti::Communicator> comm;
    std::unique_ptr<tutti::Plan> impl;
};

// A tutti_request is the Request itself: no second allocation on a non-blocking call.
namespace tutti {

inline tutti_request* to_c(Request* request) {
    return reinterpret_cast<tutti_request*>(request);
}
inline Request* from_c(tutti_request* request) {
    return reinterpret_cast<Request*>(request);
}

inline tutti_status to_c(Code code) {
    return static_cast<tutti_status>(code);
}

/// Keeps the error for tutti_last_error and returns its status.
tutti_status keep(const Error& error);

template <typename Body>
tutti_status guard(Body&& body) noexcept {
    const Result<> result = catching(body);
    return result ? TUTTI_OK : keep(result.error());
}

inline Rank rank_of(const tutti_comm* comm) {
    return comm ? comm->impl->rank() : nobody;
}
inline Rank rank_of(const tutti_plan* plan) {
    return plan ? plan->comm->rank() : nobody;
}
inline Rank rank_of(const Request* request) {
    return request ? request->keep->rank() : nobody;
}

/// The same for a call on a communicator, a plan or a request, whose rank the error then names. The
/// handle must outlive a body that fails.
template <typename Handle, typename Body>
tutti_status guard(const Handle* handle, Body&& body) noexcept {
    const Result<> result = catching(body);
    return result ? TUTTI_OK : keep(on_rank(rank_of(handle), result.error()));
}

/// The error for a null pointer, naming function and argument.
inline ErrorResult null_argument(const char* function, const char* argument) {
    return fail(Code::invalid, "{}: {} is NULL", function, argument)
        .advice("pass a pointer that is not NULL");
}

/// Hands on an error with the function's name in front of its message.
template <typename AnyResult>
AnyResult in_function(const char* function, AnyResult result) {
    if (!result) return wrap(std::move(result).error(), function);
    return result;
}

/// `invalid` if comm is NULL, `unsupported` in a process forked from the communicator's.
inline Result<> check_comm(const char* function, const tutti_comm* comm) {
    if (!comm) return null_argument(function, "comm");
    return comm->impl->forked();
}

/// The same for a call that needs the job, which this rank may have left.
inline Result<> check_member(const char* function, const tutti_comm* comm) {
    TUTTI_TRY(check_comm(function, comm));
    return in_function(function, comm->impl->calls().may_start());
}

}  // namespace tutti
