// Queries to UCX about a context, an endpoint and the end of an operation.
#pragma once

#include <string>

#include "transports/ucx/library.h"

namespace tutti::ucx {

/// Whether UCX was built with CUDA, has found a driver, and may use its CUDA parts.
bool knows_devices(const Library& ucx, ucp_context_h context);
/// UCX's own description of the context, for people and for find_network().
std::string describe_context(const Library& ucx, ucp_context_h context);
/// Whether messages go over sockets, on which rendezvous only adds round trips.
bool is_slow(const Library& ucx, ucp_ep_h endpoint);
/// Whether the error is a shortage of this process, whichever peer the message was for.
bool is_own(ucs_status_t status);

inline bool is_pending(ucs_status_ptr_t result) {
    return result != nullptr && !UCS_PTR_IS_ERR(result);
}

}  // namespace tutti::ucx
