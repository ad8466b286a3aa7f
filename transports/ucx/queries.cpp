#include "transports/ucx/queries.h"

#include <cstdio>
#include <cstdlib>

namespace tutti::ucx {
namespace {

// UCX estimates 11 µs for sockets, and less than 3 for other networks.
constexpr double slow_seconds = 8e-6;

}  // namespace

bool knows_devices(const Library& ucx, ucp_context_h context) {
    ucp_context_attr_t attributes{};
    attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    return ucx.ucp_context_query(context, &attributes) == UCS_OK &&
           (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

std::string describe_context(const Library& ucx, ucp_context_h context) {
    char* text = nullptr;
    std::size_t bytes = 0;
    std::FILE* const file = ::open_memstream(&text, &bytes);
    if (!file) return {};
    ucx.ucp_context_print_info(context, file);
    std::fclose(file);
    const std::string description(text, bytes);
    std::free(text);
    return description;
}

// Over sockets, rendezvous takes twice as long for 32 KiB to 2 MiB. A threshold that the user sets
// is used.
bool is_slow(const Library& ucx, ucp_ep_h endpoint) {
    ucp_ep_evaluate_perf_param_t question{};
    question.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE;
    question.message_size = 1;
    ucp_ep_evaluate_perf_attr_t answer{};
    answer.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME;
    return std::getenv("UCX_RNDV_THRESH") == nullptr &&
           ucx.ucp_ep_evaluate_perf(endpoint, &question, &answer) == UCS_OK &&
           answer.estimated_time > slow_seconds;
}

bool is_own(ucs_status_t status) {
    return status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE ||
           status == UCS_ERR_EXCEEDS_LIMIT || status == UCS_ERR_INVALID_PARAM ||
           status == UCS_ERR_UNSUPPORTED;
}

}  // namespace tutti::ucx
