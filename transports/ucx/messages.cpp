// A port's messages, in both directions.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/ucx/port.h"

namespace tutti::ucx {

UcxPort::UcxRequest& UcxPort::take_request(UcxPeer& peer, void* context, bool fetches) {
    UcxRequest& request = requests_.take();
    request.port = this;
    request.peer = &peer;
    request.context = context;
    request.fetches = fetches;
    request.busy = true;
    request.whole = nullptr;
    request.ok = true;
    request.payload = {};
    return request;
}

/// Gives UCX the payload as a generic datatype, so that move() can still change its address.
const void* UcxPort::as_payload(ucp_request_param_t& param, UcxRequest& request,
                                const std::byte* data, std::size_t bytes) const {
    request.payload = {const_cast<std::byte*>(data), bytes};
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = payload_type_;
    return &request.payload;
}

bool UcxPort::move(void* context, std::byte* where) {
    bool moved = false;
    requests_.each([&](UcxRequest& r) {
        if (!r.busy || r.context != context || !r.payload.memory) return;
        r.payload.memory = where;
        moved = true;
    });
    for (const auto& peer : peers_) {
        if (!peer) continue;
        for (KeptArrival* kept : peer->arriving) {
            if (!kept->where || kept->context != context) continue;
            kept->where = where;
            moved = true;
        }
    }
    return moved;
}

void UcxPort::give(UcxRequest& request) {
    request.busy = false;
    requests_.give(request);
}

Progress UcxPort::started(UcxRequest& request, ucs_status_ptr_t result) {
    if (is_pending(result)) return Progress::pending;
    UcxPeer& peer = *request.peer;
    give(request);
    if (result == nullptr) return Progress::done;
    const ucs_status_t status = UCS_PTR_STATUS(result);
    if (status == UCS_ERR_NO_RESOURCE) return Progress::busy;
    // The send never began: this process is at fault. on_failure() reports a failed endpoint.
    mark_failed(peer, status, status == UCS_ERR_IO_ERROR || is_own(status));
    return Progress::failed;
}

void UcxPort::finish(UcxRequest& request, bool ok) {
    void* context = std::exchange(request.context, nullptr);
    const bool fetches = request.fetches;
    UcxRequest* const whole = request.whole;
    ok &= request.ok;
    give(request);
    if (whole) {
        whole->ok &= ok;
        if (--whole->left == 0) finish(*whole, true);
    }
    // Without a context the engine does not wait for it, or no longer.
    if (!context) return;
    const Code code = ok ? Code::ok : Code::peer_lost;
    fetches ? events_.fetched(context, code) : events_.sent(context, code);
}

void UcxPort::on_sent(void* request, ucs_status_t status, void* ours) {
    auto& mine = *static_cast<UcxRequest*>(ours);
    UcxPort& port = *mine.port;
    // Newer UCX versions end such a message but not its endpoint, so this reports the loss.
    if (status != UCS_OK) port.mark_failed(*mine.peer, status, is_own(status));
    port.finish(mine, status == UCS_OK);
    port.ucx_.ucp_request_free(request);
}

void UcxPort::on_fetched(void* request, ucs_status_t status, std::size_t length, void* ours) {
    static_cast<void>(length);
    on_sent(request, status, ours);
}

ucp_request_param_t UcxPort::send_param(UcxRequest& request, uint32_t flags) {
    ucp_request_param_t param;  // UCX reads only the fields that the mask names
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.cb.send = &on_sent;
    param.user_data = &request;
    param.flags = flags;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    return param;
}

Progress UcxPort::send(Rank rank, const std::byte* header, const std::byte* data, std::size_t bytes,
                       void* context) {
    UcxPeer* peer = find(rank);
    if (!peer || peer->failed) return Progress::failed;
    if (peer->slow && bytes > piece_bytes) return send_pieces(*peer, header, data, bytes, context);
    if (bytes <= joined_bytes)
        return send_joined(join(*peer, header, data, bytes, context), peer->endpoint, bytes);
    UcxRequest& request = take_request(*peer, context, false);
    std::memcpy(request.message.data(), header, fabric::header_bytes);
    const bool eager = bytes <= eager_bytes || peer->slow;
    ucp_request_param_t param = send_param(request, eager ? UCP_AM_SEND_FLAG_EAGER : 0);
    const bool copied = copies(*peer);
    const void* const from = copied ? as_payload(param, request, data, bytes) : data;
    return started(request,
                   ucx_.ucp_am_send_nbx(peer->endpoint, message_id, request.message.data(),
                                        fabric::header_bytes, from, copied ? 1 : bytes, &param));
}

/// A request that holds header and payload in one piece.
UcxPort::UcxRequest& UcxPort::join(UcxPeer& peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, void* context) {
    UcxRequest& request = take_request(peer, context, false);
    std::memcpy(request.message.data(), header, fabric::header_bytes);
    if (bytes > 0) std::memcpy(request.message.data() + fabric::header_bytes, data, bytes);
    return request;
}

Progress UcxPort::send_joined(UcxRequest& request, ucp_ep_h endpoint, std::size_t bytes) {
    const ucp_request_param_t param = send_param(request, UCP_AM_SEND_FLAG_EAGER);
    return started(request,
                   ucx_.ucp_am_send_nbx(endpoint, message_id, nullptr, 0, request.message.data(),
                                        fabric::header_bytes + bytes, &param));
}

Progress UcxPort::send_crossing(Rank rank, const std::byte* header, const std::byte* data,
                                std::size_t bytes, unsigned way) {
    if (bytes > joined_bytes) return send(rank, header, data, bytes, nullptr);
    UcxPeer* peer = find(rank);
    if (!peer || peer->failed) return Progress::failed;
    const bool second = way == 1 && peer->slow && !peer->one_way;
    if (second && !peer->second && make_endpoint(*peer, peer->second) != UCS_OK) {
        peer->second = nullptr;
        peer->one_way = true;
    }
    return send_joined(join(*peer, header, data, bytes, nullptr),
                       second && peer->second ? peer->second : peer->endpoint, bytes);
}

// If it returns failed or busy, no piece is in progress; otherwise the event reports the result.
Progress UcxPort::send_pieces(UcxPeer& peer, const std::byte* header, const std::byte* data,
                              std::size_t bytes, void* context) {
    PieceHeader piece;
    std::memcpy(piece.header.data(), header, fabric::header_bytes);
    piece.number = peer.in_pieces++;
    piece.bytes = bytes;
    UcxRequest& whole = take_request(peer, context, false);
    whole.left = 0;
    auto result = Progress::done;
    for (; piece.offset < bytes; piece.offset += piece_bytes) {
        UcxRequest& request = take_request(peer, nullptr, false);
        request.whole = &whole;
        std::memcpy(request.message.data(), &piece, sizeof piece);
        const ucp_request_param_t param = send_param(request, UCP_AM_SEND_FLAG_EAGER);
        result = started(request,
                         ucx_.ucp_am_send_nbx(peer.endpoint, piece_id, request.message.data(),
                                              sizeof piece, data + piece.offset,
                                              std::min(piece_bytes, bytes - piece.offset), &param));
        if (result == Progress::pending) ++whole.left;
        if (result == Progress::busy && piece.offset > 0) {
            // The peer has received a part, and no later message can complete it.
            mark_failed(peer, UCS_ERR_NO_RESOURCE, true);
            result = Progress::failed;
        }
        if (result == Progress::busy || result == Progress::failed) break;
    }
    const bool failed = result == Progress::busy || result == Progress::failed;
    whole.ok &= !failed;
    if (whole.left > 0) return Progress::pending;
    give(whole);
    return failed ? result : Progress::done;
}

/// The data is valid during the event only.
ucs_status_t UcxPort::handle_joined(const void* data, std::size_t length) {
    Arrival arrival;
    arrival.header = static_cast<const std::byte*>(data);
    arrival.data = arrival.header + fabric::header_bytes;
    arrival.bytes = length - fabric::header_bytes;
    events_.arrived(arrival);
    return UCS_OK;
}

ucs_status_t UcxPort::on_message(void* self, const void* header, std::size_t header_length,
                                 void* data, std::size_t length, const ucp_am_recv_param_t* param) {
    auto& port = *static_cast<UcxPort*>(self);
    if (header_length == 0 && length >= fabric::header_bytes)
        return port.handle_joined(data, length);
    if (header_length != fabric::header_bytes) return UCS_OK;
    const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    const bool can_stay = rendezvous || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    Arrival arrival;
    arrival.header = static_cast<const std::byte*>(header);
    arrival.data = rendezvous ? nullptr : static_cast<const std::byte*>(data);
    arrival.bytes = length;
    KeptArrival* kept = nullptr;
    Rank sender = nobody;
    std::memcpy(&sender, arrival.header + fabric::sender_offset, sizeof sender);
    if (can_stay) {
        kept = &port.kept_.take();
        *kept = {.data = data, .peer = port.find(sender)};
        arrival.hold = kept;
    }
    const bool keep = port.events_.arrived(arrival);
    if (keep) return UCS_INPROGRESS;
    if (kept) port.kept_.give(*kept);
    return UCS_OK;
}

// ---- messages in pieces ----------------------------------------------------------------------

ucs_status_t UcxPort::on_piece(void* self, const void* header, std::size_t header_length,
                               void* data, std::size_t length, const ucp_am_recv_param_t* param) {
    auto& port = *static_cast<UcxPort*>(self);
    PieceHeader piece;
    if (header_length != sizeof piece || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        return UCS_OK;
    std::memcpy(&piece, header, sizeof piece);
    Rank sender = nobody;
    std::memcpy(&sender, piece.header.data() + fabric::sender_offset, sizeof sender);
    UcxPeer* const peer = port.find(sender);
    const bool fits = piece.offset <= piece.bytes && length <= piece.bytes - piece.offset;
    if (peer && !peer->failed && length > 0 && fits) port.handle_piece(*peer, piece, data, length);
    return UCS_OK;
}

/// The message of a piece. When the first piece arrives, the engine says where the payload goes.
UcxPort::KeptArrival* UcxPort::arriving(UcxPeer& peer, const PieceHeader& piece) {
    for (KeptArrival* kept : peer.arriving)
        if (kept->number == piece.number) return kept;
    if (peer.arriving.size() >= most_arriving) return nullptr;
    KeptArrival& kept = kept_.take();
    kept = {.peer = &peer,
            .held = true,
            .number = piece.number,
            .bytes = piece.bytes,
            .left = piece.bytes};
    peer.arriving.push_back(&kept);
    Arrival arrival;
    arrival.header = piece.header.data();
    arrival.bytes = piece.bytes;
    arrival.hold = &kept;
    arrival.at_once = true;
    kept.held = events_.arrived(arrival);
    return &kept;
}

void UcxPort::handle_piece(UcxPeer& peer, const PieceHeader& piece, const void* data,
                           std::size_t length) {
    KeptArrival* const kept = arriving(peer, piece);
    if (!kept || length > kept->left || piece.offset + length > kept->bytes) return;
    if (kept->where) std::memcpy(kept->where + piece.offset, data, length);
    kept->left -= length;
    if (kept->left > 0) return;
    std::erase(peer.arriving, kept);
    if (!kept->held)
        kept_.give(*kept);
    else if (kept->where)
        events_.fetched(kept->context, Code::ok);
}

/// Ends a lost peer's incomplete messages: their other pieces will not arrive.
void UcxPort::end_arriving(UcxPeer& peer) {
    for (KeptArrival* kept : std::exchange(peer.arriving, {})) {
        kept->left = 0;
        if (!kept->held)
            kept_.give(*kept);
        else if (kept->where)
            events_.fetched(kept->context, Code::peer_lost);
    }
}

// ---- kept arrivals ---------------------------------------------------------------------------

Progress UcxPort::fetch(void* hold, std::byte* where, std::size_t bytes, void* context) {
    auto& kept = *static_cast<KeptArrival*>(hold);
    if (!kept.peer || kept.peer->failed) return Progress::failed;
    if (kept.left > 0) {
        kept.where = where;
        kept.context = context;
        return Progress::pending;
    }
    return fetch(kept, where, bytes, context, UCS_MEMORY_TYPE_HOST);
}

Progress UcxPort::fetch(KeptArrival& kept, std::byte* where, std::size_t bytes, void* context,
                        ucs_memory_type_t memory) {
    UcxRequest& request = take_request(*kept.peer, context, true);
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.cb.recv_am = &on_fetched;
    param.user_data = &request;
    param.memory_type = memory;
    const bool copied = memory == UCS_MEMORY_TYPE_HOST && copies(*kept.peer);
    void* const to = copied ? const_cast<void*>(as_payload(param, request, where, bytes)) : where;
    // From here on the data is UCX's, even if the call fails.
    return started(request, ucx_.ucp_am_recv_data_nbx(worker_, std::exchange(kept.data, nullptr),
                                                      to, copied ? 1 : bytes, &param));
}

void UcxPort::release(void* hold) {
    auto& kept = *static_cast<KeptArrival*>(hold);
    if (kept.data) ucx_.ucp_am_data_release(worker_, std::exchange(kept.data, nullptr));
    kept.held = false;
    kept.where = nullptr;
    if (kept.left == 0) kept_.give(kept);
}

bool UcxPort::progress() {
    const bool moved = devices_ ? devices_->progress() : ucx_.ucp_worker_progress(worker_) != 0;
    if (receive_check_.under_way() && !receive_check_.follow()) [[unlikely]]
        mark_all_failed();
    return moved;
}

}  // namespace tutti::ucx
