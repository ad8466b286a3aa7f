// Finds UCX at run time. The library is loaded when a communicator first asks for it: loading it
// installs signal handlers and reads dozens of settings, which users of other transports do not
// want.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "base/result.h"

namespace tutti::ucx {

#define TUTTI_UCX_FUNCTIONS(X)        \
    X(ucp_get_version)                \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_context_print_info)         \
    X(ucp_context_query)              \
    X(ucp_config_read)                \
    X(ucp_config_modify)              \
    X(ucp_config_release)             \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_query)               \
    X(ucp_worker_progress)            \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_arm)                 \
    X(ucp_worker_get_address)         \
    X(ucp_worker_release_address)     \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_ep_flush_nbx)               \
    X(ucp_ep_evaluate_perf)           \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_am_data_release)            \
    X(ucp_mem_map)                    \
    X(ucp_mem_unmap)                  \
    X(ucp_dt_create_generic)          \
    X(ucp_request_check_status)       \
    X(ucp_request_free)               \
    X(ucs_status_string)

struct Library {
#define TUTTI_UCX_DECLARE(function) decltype(&::function) function = nullptr;
    TUTTI_UCX_FUNCTIONS(TUTTI_UCX_DECLARE)
#undef TUTTI_UCX_DECLARE
    std::string version;  // "1.13"
};

/// The UCX of this process. unsupported: there is none, or it is too old.
Result<const Library*> load_library();

/// Whether UCX has loaded its CUDA part, usable or not.
bool built_with_cuda(const Library& library);

}  // namespace tutti::ucx
