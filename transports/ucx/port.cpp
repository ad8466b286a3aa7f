#include "transports/ucx/port.h"

#include <sched.h>

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "transports/ucx/cause.h"
#include "transports/ucx/network.h"

namespace tutti::ucx {
namespace {

// A disconnect waits so long at most for UCX to give a peer's operations back. A network card ends
// them within milliseconds. A failed operation waits for that, and returns within a second.
constexpr int64_t disconnect_ms = 300;
// An error quotes UCX's log of this time.
constexpr int64_t recently_ns = 1'000'000'000;

}  // namespace

// ---- life ------------------------------------------------------------------------------------

Result<> UcxPort::open(ucp_context_h context) {
    context_ = context;
    memory_.use(context);
    const auto check = [&](ucs_status_t status, const char* doing) -> Result<> {
        if (status == UCS_OK) return {};
        return fail(Code::system, "{}: {}", doing, ucx_.ucs_status_string(status));
    };
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    TUTTI_TRY(check(ucx_.ucp_worker_create(context_, &params, &worker_), "creating a UCX worker"));
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
    TUTTI_TRY(check(ucx_.ucp_worker_query(worker_, &attributes), "querying a UCX worker"));
    if (attributes.max_am_header < sizeof(PieceHeader))
        return fail(Code::unsupported,
                    "a header of a UCX active message holds {} bytes, but tutti needs {}",
                    attributes.max_am_header, sizeof(PieceHeader))
            .advice("let UCX use other transports (UCX_TLS), or take ucx out of TUTTI_TRANSPORT");
    for (const auto& [id, handler] : {std::pair{message_id, &on_message}, {piece_id, &on_piece}})
        TUTTI_TRY(check(handle(id, handler), "setting a UCX message handler"));
    TUTTI_TRY(check(receive_check_.prepare(context_, worker_, check_id),
                    "setting a UCX message handler"));
    TUTTI_TRY(check(ucx_.ucp_worker_get_efd(worker_, &wake_fd_), "getting a UCX descriptor"));
    if (knows_devices(ucx_, context_)) devices_ = make_cuda_messages(*this);
    limits_.takes_devices = devices_ != nullptr;
    limits_.eager_bytes = eager_bytes;
    limits_.copied_bytes = joined_bytes;
    const OpenedNetworks network = find_network(describe_context(ucx_, context_));
    limits_.sockets = network.sockets;
    limits_.sockets_within = network.sockets_within;
    limits_.bandwidth_gbs = network.bandwidth_gbs;
    if (!network.cards) {
        TUTTI_ASSIGN(payload_type_, payload_type(ucx_));
    }
    return make_address();
}

ucs_status_t UcxPort::handle(unsigned id, ucp_am_recv_callback_t handler) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.flags = UCP_AM_FLAG_WHOLE_MSG;
    param.cb = handler;
    param.arg = this;
    return ucx_.ucp_worker_set_am_recv_handler(worker_, &param);
}

Result<> UcxPort::make_address() {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    const ucs_status_t status = ucx_.ucp_worker_get_address(worker_, &address, &bytes);
    if (status != UCS_OK)
        return fail(Code::system, "getting a UCX address: {}", ucx_.ucs_status_string(status));
    const auto* first = reinterpret_cast<const std::byte*>(address);
    address_.assign(first, first + bytes);
    ucx_.ucp_worker_release_address(worker_, address);
    return {};
}

UcxPort::~UcxPort() {
    if (worker_) {
        for (const auto& peer : peers_)
            if (peer) disconnect(peer->rank);
        receive_check_.stop();
        ucx_.ucp_worker_destroy(worker_);
    }
    memory_.remove_all();
    if (context_) ucx_.ucp_cleanup(context_);
}

// ---- peers -----------------------------------------------------------------------------------

UcxPort::UcxPeer* UcxPort::find(Rank rank) const {
    const auto index = static_cast<std::size_t>(rank);  // a negative rank becomes too large
    return index < peers_.size() ? peers_[index].get() : nullptr;
}

Result<> UcxPort::connect(Rank rank, ByteView address) {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= peers_.size()) peers_.resize(index + 1);
    peers_[index] = std::make_unique<UcxPeer>();
    UcxPeer& peer = *peers_[index];
    peer.port = this;
    peer.rank = rank;
    peer.address.assign(address.begin(), address.end());
    const ucs_status_t status = make_endpoint(peer, peer.endpoint);
    peer.slow = status == UCS_OK && is_slow(ucx_, peer.endpoint);
    if (status == UCS_OK) return {};
    peers_[index].reset();
    return fail_rank(status == UCS_ERR_UNREACHABLE ? Code::unsupported : Code::system, rank,
                     "UCX cannot connect to rank {}: {}", rank, ucx_.ucs_status_string(status))
        .advice("set UCX_TLS and UCX_NET_DEVICES alike on both ranks, or remove them");
}

ucs_status_t UcxPort::make_endpoint(UcxPeer& peer, ucp_ep_h& endpoint) const {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &on_failure;
    params.err_handler.arg = &peer;
    return ucx_.ucp_ep_create(worker_, &params, &endpoint);
}

void UcxPort::on_failure(void* arg, ucp_ep_h endpoint, ucs_status_t status) {
    static_cast<void>(endpoint);
    auto& peer = *static_cast<UcxPeer*>(arg);
    peer.port->mark_failed(peer, status, is_own(status));
}

void UcxPort::mark_failed(UcxPeer& peer, ucs_status_t status, bool own) {
    if (std::exchange(peer.failed, true)) return;
    const char* const words = ucx_.ucs_status_string(status);
    if (own)
        events_.lost(peer.rank,
                     fmt::format("UCX cannot move a message: {}{}", words,
                                 cause_since(now_ns() - recently_ns)),
                     Culprit::own);
    else
        events_.lost(peer.rank,
                     fmt::format("its UCX endpoint failed: {} (its process may have ended)", words),
                     Culprit::peer);
}

/// This rank receives no messages any more, and no present peer is to blame.
void UcxPort::mark_all_failed() {
    for (const auto& peer : peers_)
        if (peer && !std::exchange(peer->failed, true))
            events_.lost(peer->rank,
                         "no message reaches it any more, because a process of its host was killed "
                         "while it wrote to UCX's shared memory (TUTTI_TRANSPORT=shm,ucx avoids "
                         "that)",
                         Culprit::own);
}

void UcxPort::disconnect(Rank rank) {
    UcxPeer* peer = find(rank);
    if (!peer || !peer->endpoint) return;
    peer->failed = true;
    if (!peer->slow) receive_check_.schedule();
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const auto deadline = Deadline::after_ms(disconnect_ms);
    for (ucp_ep_h* endpoint : {&peer->endpoint, &peer->second})
        if (*endpoint)
            wait(ucx_.ucp_ep_close_nbx(std::exchange(*endpoint, nullptr), &param), deadline);
    end_arriving(*peer);
    drop_payloads(*peer);
    const auto left = [&] {
        bool any = false;
        requests_.each([&](const UcxRequest& r) { any |= r.busy && r.peer == peer && r.context; });
        return any;
    };
    while (left() && !deadline.passed()) progress();
    // End the requests that UCX still has. When it gives one back later, the engine is not told.
    requests_.each([&](UcxRequest& r) {
        if (r.busy && r.peer == peer && r.context) end(r);
    });
}

/// Ends the request for the engine: without a context, UCX's later completion causes no event.
void UcxPort::end(UcxRequest& request) {
    void* const context = std::exchange(request.context, nullptr);
    request.fetches ? events_.fetched(context, Code::peer_lost)
                    : events_.sent(context, Code::peer_lost);
}

// UCX keeps a request whose peer died in the middle for as long as the worker lives.
void UcxPort::drop_payloads(const UcxPeer& peer) {
    requests_.each([&](UcxRequest& r) {
        if (!r.busy || r.peer != &peer || !r.context || !r.payload.memory) return;
        r.payload.memory = nullptr;
        end(r);
    });
}

void UcxPort::wait(ucs_status_ptr_t request, Deadline deadline) {
    if (!is_pending(request)) return;
    while (ucx_.ucp_request_check_status(request) == UCS_INPROGRESS && !deadline.passed())
        progress();
    ucx_.ucp_request_free(request);
}

// A flush of the worker would also wait for closed endpoints. In shared memory, UCX ends one only
// when its peer's queue has room, and a dead peer never empties its queue.
void UcxPort::flush(Deadline deadline) {
    const ucp_request_param_t param{};
    std::vector<ucs_status_ptr_t> under_way;
    for (const auto& peer : peers_) {
        if (!peer || peer->failed) continue;
        for (const ucp_ep_h endpoint : {peer->endpoint, peer->second})
            if (endpoint) under_way.push_back(ucx_.ucp_ep_flush_nbx(endpoint, &param));
    }
    for (const ucs_status_ptr_t request : under_way) wait(request, deadline);
}

}  // namespace tutti::ucx
