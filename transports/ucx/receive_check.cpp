#include "transports/ucx/receive_check.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace tutti::ucx {
namespace {

constexpr int64_t delay_ns = 100'000'000;
// A living sender may be interrupted before it marks its place.
constexpr int64_t patience_ns = 3'000'000'000;
// The time between two calls counts up to this: a process that was stopped has read nothing.
constexpr int64_t longest_gap_ns = 200'000'000;

}  // namespace

ucs_status_t ReceiveCheck::prepare(ucp_context_h context, ucp_worker_h worker, unsigned id) {
    context_ = context;
    worker_ = worker;
    id_ = id;
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.cb = &on_message;
    param.arg = this;
    return ucx_.ucp_worker_set_am_recv_handler(worker, &param);
}

ucs_status_t ReceiveCheck::on_message(void* self, const void* header, std::size_t header_length,
                                      void* data, std::size_t length,
                                      const ucp_am_recv_param_t* param) {
    static_cast<void>(data), static_cast<void>(length), static_cast<void>(param);
    auto& check = *static_cast<ReceiveCheck*>(self);
    uint64_t number = 0;
    if (header_length != sizeof number) return UCS_OK;
    std::memcpy(&number, header, sizeof number);
    check.arrived_ |= number == check.number_;
    return UCS_OK;
}

// Begins anew: the peer may have written behind the message of a check that is under way.
void ReceiveCheck::schedule() {
    stop();
    under_way_ = true;
    last_ns_ = now_ns();
    left_ns_ = delay_ns;
}

bool ReceiveCheck::follow() {
    const int64_t now = now_ns();
    left_ns_ -= std::min(now - std::exchange(last_ns_, now), longest_gap_ns);
    if (sender_) ucx_.ucp_worker_progress(sender_);
    if (!arrived_ && left_ns_ > 0) return true;
    if (!sender_ && begin()) return true;
    const bool failed = sender_ && !arrived_;
    stop();
    return !failed;
}

/// False: there can be no check.
bool ReceiveCheck::begin() {
    left_ns_ = patience_ns;
    ++number_;
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    if (ucx_.ucp_worker_create(context_, &params, &sender_) != UCS_OK) sender_ = nullptr;
    if (sender_ && send()) return true;
    log::debug("UCX sends no message within this process, so its shared memory is not checked");
    stop();
    return false;
}

bool ReceiveCheck::send() {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    if (ucx_.ucp_worker_get_address(worker_, &address, &bytes) != UCS_OK) return false;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = address;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // as a peer's, so that UCX chooses the same way
    const ucs_status_t made = ucx_.ucp_ep_create(sender_, &params, &endpoint_);
    ucx_.ucp_worker_release_address(worker_, address);
    if (made != UCS_OK) {
        endpoint_ = nullptr;
        return false;
    }
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    request_ = ucx_.ucp_am_send_nbx(endpoint_, id_, &number_, sizeof number_, nullptr, 0, &param);
    return !UCS_PTR_IS_ERR(request_);
}

void ReceiveCheck::stop() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucs_status_ptr_t closing = nullptr;
    if (endpoint_) closing = ucx_.ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
    for (const ucs_status_ptr_t request : {closing, std::exchange(request_, nullptr)})
        if (UCS_PTR_IS_PTR(request)) ucx_.ucp_request_free(request);
    if (sender_) ucx_.ucp_worker_destroy(std::exchange(sender_, nullptr));
    under_way_ = arrived_ = false;
}

}  // namespace tutti::ucx
