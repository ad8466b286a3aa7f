#include "p2p/point_to_point.h"

#include <algorithm>
#include <cstring>

#include "net/serving.h"
#include "reduce/streaming_stores.h"

namespace tutti {
namespace {

const Error no_error{Code::ok, nobody, 0, {}};
// The time that a receive waits for its channel to open, to learn whether the channel takes device
// memory. If the peer is late, the receive goes on without the channel.
constexpr int64_t meeting_ms = 1000;
// The tag to peek with while the message's tag is not known; with epoch 0 no message counts as
// stale.
constexpr Tag unknown{};
// One pass takes at most this many messages from a channel, so that other channels get their turn.
constexpr int most_messages = 64;

using TransferQueue = std::deque<Transfer*>;

// Messages with one tag stay in order; messages with other tags pass held ones.
bool may_pass(TransferQueue& waiting, TransferQueue::iterator send) {
    const auto same_tag = [&](const Transfer* t) { return t->user_tag == (*send)->user_tag; };
    return !(*send)->held && std::none_of(waiting.begin(), send, same_tag);
}

TransferQueue::iterator next_to_send(TransferQueue& waiting) {
    for (auto it = waiting.begin(); it != waiting.end(); ++it)
        if (may_pass(waiting, it)) return it;
    return waiting.end();
}

/// Copies data that arrived elsewhere into the receive's buffer. False: it cannot yet.
bool copy_in(Transfer& receive, const std::byte* data, std::size_t bytes) {
    std::byte* const place = receive.memory + receive.moved;
    if (data == place) return true;
    if (receive.recv_target) return receive.recv_target->copy_in(place, data, bytes);
    std::memcpy(place, data, bytes);
    return true;
}

// The error of a message that does not fit this receive of rank `own`, or no_error.
Error misfit(const Transfer& receive, Rank own, Rank from, const Tag& tag) {
    if (message_dtype(tag) != receive.dtype)
        return fail_rank(Code::mismatch, from,
                         "rank {} sent {} with tag {}, but rank {} receives {}", from,
                         dtype_name(message_dtype(tag)), tag.root, own, dtype_name(receive.dtype))
            .advice("give the send and the receive the same dtype")
            .value();
    if (tag.plan > receive.bytes)
        return fail_rank(
                   Code::invalid, from,
                   "rank {} sent {} bytes with tag {}, but the buffer of rank {} has {} bytes",
                   from, tag.plan, tag.root, own, receive.bytes)
            .advice("receive into a buffer of at least {} bytes", tag.plan)
            .value();
    return no_error;
}

}  // namespace

// ---- connecting --------------------------------------------------------------------------------

PointToPoint::PeerQueues* PointToPoint::find(Rank rank) {
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : &found->second;
}

Result<> PointToPoint::open_out(PeerQueues& peer, Deadline deadline) {
    if (peer.data_out) return {};
    TUTTI_ASSIGN(const OpenSender requests,
                 channels_.sender(peer.rank, point_to_point_lane, deadline));
    TUTTI_ASSIGN(const OpenSender data,
                 channels_.sender(peer.rank, point_to_point_lane + 1, deadline));
    peer.requests_out = requests.sender;
    peer.data_out = data.sender;
    return {};
}

Result<> PointToPoint::connect(const Transfer& transfer, OwnerFlag& owner, Deadline deadline,
                               const std::function<bool()>& ended) {
    const bool any = transfer.peer == any_source;
    const bool needs_channel =
        transfer.needs_channel && !any && transfer.bytes > limits_.eager_bytes;
    for (Rank rank = any ? 0 : transfer.peer; rank < (any ? size_ : transfer.peer + 1); ++rank) {
        // Only this thread adds peers, so it may search without the owner flag.
        PeerQueues* known = find(rank);
        if (rank == rank_ || (known && ((!transfer.sends && !needs_channel) || known->connected)))
            continue;
        const net::CancelWaitsWhen over(ended);
        PeerQueues peer;
        peer.rank = rank;
        peer.requests_in = channels_.receiver(rank, point_to_point_lane);
        peer.data_in = channels_.receiver(rank, point_to_point_lane + 1);
        // Other receives open no sender: a sending peer has opened its own half, and may be gone by
        // now or late. push_answers() opens the senders when there is an answer for the peer.
        if (transfer.sends) {
            TUTTI_TRY(open_out(peer, deadline));
        } else if (needs_channel) {
            (void)open_out(peer, Deadline::after_ms(deadline.left_ms(meeting_ms)));
        }
        peer.connected = peer.data_out != nullptr;
        const OwnerGuard owned(owner);
        if (!known) {
            peers_.emplace(rank, std::move(peer));
        } else if (peer.connected) {
            // A thread that answered this peer may have set the senders meanwhile, to the same
            // values.
            known->requests_out = peer.requests_out;
            known->data_out = peer.data_out;
            known->connected = true;
        }
    }
    return {};
}

bool PointToPoint::takes_device(const Transfer& transfer) const {
    if (transfer.peer == rank_ || transfer.bytes <= limits_.eager_bytes) return false;
    // Only this thread adds peers and sets `connected`.
    const auto peer = peers_.find(transfer.peer);
    return peer != peers_.end() && peer->second.connected && peer->second.data_out->takes_device();
}

// ---- posting -----------------------------------------------------------------------------------

void PointToPoint::post(Transfer& transfer) {
    if (transfer.sends)
        post_send(transfer);
    else
        post_receive(transfer);
}

void PointToPoint::post_send(Transfer& send) {
    if (send.peer != rank_) {
        PeerQueues& peer = *find(send.peer);
        send.id = ++peer.last_id;
        peer.to_send.push_back(&send);
        return;
    }
    to_self_.push_back(&send);
    send_to_self();
}

// Matches messages to this rank itself as if they had just arrived. A message without room waits
// for its receive, and only messages with the same tag wait behind it.
bool PointToPoint::send_to_self() {
    bool moved = false;
    for (auto it = to_self_.begin(); it != to_self_.end();) {
        Transfer& send = **it;
        const Tag tag = make_message_tag(MessageKind::whole, send, send.bytes, send.bytes);
        if (!may_pass(to_self_, it) || !match(rank_, tag, send.memory)) {
            ++it;
            continue;
        }
        it = to_self_.erase(it);
        moved = true;
        host_.finished(send, no_error);
    }
    return moved;
}

void PointToPoint::post_receive(Transfer& receive) {
    const auto message = unexpected_.take(receive);
    if (message) return deliver(receive, message->from, message->tag, message->data.data());
    receives_.push_back(&receive);
    send_to_self();
}

// ---- matching ----------------------------------------------------------------------------------

/// False if the message must stay where it is: no receive wants it, and the queue is full or there
/// is no memory.
bool PointToPoint::match(Rank from, const Tag& tag, const std::byte* data) {
    const auto found = std::find_if(receives_.begin(), receives_.end(),
                                    [&](Transfer* r) { return wants(*r, from, tag); });
    if (found != receives_.end()) {
        Transfer& receive = **found;
        receives_.erase(found);
        deliver(receive, from, tag, data);
        return true;
    }
    return unexpected_.keep(from, tag, data);
}

void PointToPoint::deliver(Transfer& receive, Rank from, const Tag& tag, const std::byte* data) {
    receive.received = {from, tag.root, tag.plan / dtype_bytes(receive.dtype)};
    const Error error = misfit(receive, rank_, from, tag);
    if (kind_of(tag) == MessageKind::whole) {
        const bool comes = error.code == Code::ok && tag.count > 0;
        if (comes && receive.recv_target) receive.recv_target->keep(data, tag.count);
        if (comes && !receive.recv_target) std::memcpy(receive.memory, data, tag.count);
        return host_.finished(receive, error);
    }
    receive.id = tag.sequence;
    // The receive ends only after its refusal is sent: without pending transfers no thread would
    // drive the engine, and the refusal may need a channel that is not open yet.
    if (error.code != Code::ok) {
        answer(from, tag, MessageKind::refuse);
        find(from)->refusing.push_back(&receive);
        return;
    }
    receive.total = tag.plan;
    PeerQueues& peer = *find(from);
    peer.matched.push_back(&receive);
    accept_announced(peer);
}

/// Tells the senders of matched messages to go on, except where the receive is held.
bool PointToPoint::accept_announced(PeerQueues& peer) {
    const auto comes = [&](Transfer* receive) {
        if (receive->held) return false;
        peer.arriving.push_back(receive);
        // Offer the buffer before the sender is told, so that the data arrives in it.
        Receiver* const in = peer.data_in->receiver.load(std::memory_order_acquire);
        if (in && peer.arriving.front() == receive) offer(*in, *receive);
        peer.answers.push_back(make_message_tag(MessageKind::go_on, *receive, 0, receive->total));
        return true;
    };
    return std::erase_if(peer.matched, comes) > 0;
}

void PointToPoint::answer(Rank to, const Tag& announcement, MessageKind kind) {
    Tag tag = announcement;
    tag.call = (announcement.call & ~0xffu) | static_cast<uint32_t>(kind);
    tag.count = 0;
    find(to)->answers.push_back(tag);
}

// ---- moving ------------------------------------------------------------------------------------

void PointToPoint::progress(bool& moved) {
    moved |= send_to_self();
    for (auto& [rank, peer] : peers_) {
        moved |= handle_data(peer);
        moved |= handle_requests(peer);
        moved |= accept_announced(peer);
        moved |= push_answers(peer);
        if (!peer.data_out) continue;
        moved |= push_requests(peer);
        moved |= push_data(peer);
        moved |= finish_sent(peer);
    }
}

std::size_t PointToPoint::next_piece(const Transfer& transfer, std::size_t total) const {
    return std::min(limits_.message_bytes, total - transfer.moved);
}

bool PointToPoint::push_requests(PeerQueues& peer) {
    bool moved = false;
    for (auto next = next_to_send(peer.to_send); next != peer.to_send.end();
         next = next_to_send(peer.to_send)) {
        Transfer& send = **next;
        const bool whole = send.bytes <= limits_.eager_bytes;
        const std::size_t bytes = whole ? send.bytes : 0;
        std::byte* place = peer.requests_out->reserve(bytes);
        if (!place) break;
        copy_message(peer.requests_out->streaming_policy(Writer::copy), place, send.memory, bytes);
        peer.requests_out->commit(
            make_message_tag(whole ? MessageKind::whole : MessageKind::announce, send, bytes,
                             send.bytes),
            bytes);
        moved = true;
        peer.to_send.erase(next);
        if (whole)
            host_.finished(send, no_error);
        else
            peer.announced.push_back(&send);
    }
    return moved;
}

/// Called when a receive has the first answer for a peer. False: the senders are not open yet.
bool PointToPoint::attach_senders(PeerQueues& peer) {
    if (peer.data_out) return true;
    Sender* const requests = channels_.sender_soon(peer.rank, point_to_point_lane);
    Sender* const data = channels_.sender_soon(peer.rank, point_to_point_lane + 1);
    if (!requests || !data) return false;
    peer.requests_out = requests;
    peer.data_out = data;
    return true;
}

bool PointToPoint::push_answers(PeerQueues& peer) {
    bool moved = false;
    while (!peer.answers.empty()) {
        if (!attach_senders(peer) || !peer.data_out->reserve(0)) break;
        const Tag tag = peer.answers.front();
        peer.data_out->commit(tag, 0);
        peer.answers.pop_front();
        moved = true;
        if (kind_of(tag) == MessageKind::refuse) finish_refused(peer, tag);
    }
    return moved;
}

void PointToPoint::finish_refused(PeerQueues& peer, const Tag& refusal) {
    const auto found = std::find_if(peer.refusing.begin(), peer.refusing.end(),
                                    [&](Transfer* t) { return t->id == refusal.sequence; });
    if (found == peer.refusing.end()) return;
    Transfer& receive = **found;
    peer.refusing.erase(found);
    host_.finished(receive, misfit(receive, rank_, peer.rank, refusal));
}

bool PointToPoint::push_data(PeerQueues& peer) {
    bool moved = false;
    while (!peer.sending.empty() && peer.data_out->can_push()) {
        Transfer& send = *peer.sending.front();
        const std::size_t bytes = next_piece(send, send.bytes);
        const Tag tag = make_message_tag(MessageKind::data, send, bytes, send.bytes);
        if (send.on_device)
            peer.data_out->push_from_device(tag, send.memory + send.moved, bytes);
        else
            peer.data_out->push(tag, send.memory + send.moved, bytes);
        // A push that gets no memory sends nothing; check_deadlines() reports it (health).
        if (peer.data_out->health() != Code::ok) break;
        send.moved += bytes;
        moved = true;
        if (send.moved < send.bytes) continue;
        peer.sending.pop_front();
        peer.draining.push_back(&send);
    }
    return moved;
}

bool PointToPoint::finish_sent(PeerQueues& peer) {
    if (peer.draining.empty() || !peer.data_out->all_sent()) return false;
    for (Transfer* send : std::exchange(peer.draining, {})) host_.finished(*send, no_error);
    return true;
}

bool PointToPoint::handle_requests(PeerQueues& peer) {
    Receiver* in = peer.requests_in->receiver.load(std::memory_order_acquire);
    bool moved = false;
    for (int i = 0; in && i < most_messages; ++i) {
        Receiver::PeekedMessage message = in->peek(unknown, 0);
        if (!message.data) break;
        const Tag tag = message.tag;
        const bool announces = kind_of(tag) == MessageKind::announce && tag.count == 0;
        const bool whole = kind_of(tag) == MessageKind::whole && tag.count == tag.plan;
        // A message's place depends on its size, so peek again with the size.
        if (whole && tag.count <= limits_.message_bytes) message = in->peek(tag, tag.count);
        if (!message.data) break;
        const bool understood = (announces || whole) && tag.count <= limits_.message_bytes;
        if (understood && !match(peer.rank, tag, message.data)) break;
        in->release();
        moved = true;
    }
    return moved;
}

bool PointToPoint::handle_answer(PeerQueues& peer, const Tag& tag) {
    const auto found = std::find_if(peer.announced.begin(), peer.announced.end(),
                                    [&](Transfer* t) { return t->id == tag.sequence; });
    if (found == peer.announced.end()) return false;
    Transfer& send = **found;
    peer.announced.erase(found);
    if (kind_of(tag) == MessageKind::go_on) {
        peer.sending.push_back(&send);
    } else {
        host_.finished(send,
                       fail_rank(Code::invalid, peer.rank,
                                 "rank {} could not take {} bytes with tag {}: its receive has "
                                 "another dtype or a smaller buffer",
                                 peer.rank, send.bytes, send.user_tag)
                           .advice("give the send and the receive the same dtype and count")
                           .value());
    }
    return true;
}

/// Offers the buffer for the next piece to the channel, once.
void PointToPoint::offer(Receiver& in, Transfer& receive) {
    if (std::exchange(receive.offered, true)) return;
    const std::size_t bytes = next_piece(receive, receive.total);
    const Tag tag = make_message_tag(MessageKind::data, receive, bytes, receive.total);
    if (receive.on_device)
        in.offer_on_device(tag, receive.memory + receive.moved, bytes);
    else
        in.offer(tag, receive.memory + receive.moved, bytes);
}

bool PointToPoint::handle_data(PeerQueues& peer) {
    Receiver* in = peer.data_in->receiver.load(std::memory_order_acquire);
    bool moved = false;
    for (int i = 0; in && i < most_messages; ++i) {
        Transfer* receive = peer.arriving.empty() ? nullptr : peer.arriving.front();
        const std::size_t bytes = receive ? next_piece(*receive, receive->total) : 0;
        const Tag expected =
            receive ? make_message_tag(MessageKind::data, *receive, bytes, receive->total)
                    : unknown;
        if (receive) offer(*in, *receive);
        const Receiver::PeekedMessage message = in->peek(expected, bytes);
        if (!message.data) break;
        if (!receive || message.tag != expected) {
            handle_answer(peer, message.tag);
        } else {
            if (!copy_in(*receive, message.data, bytes)) break;
            receive->moved += bytes;
        }
        if (receive) receive->offered = false;
        in->release();
        moved = true;
        if (!receive || receive->moved < receive->total) continue;
        peer.arriving.pop_front();
        host_.finished(*receive, no_error);
    }
    return moved;
}

void PointToPoint::arm(bool on) {
    for (auto& [rank, peer] : peers_) {
        if (peer.requests_out) peer.requests_out->arm(on);
        if (peer.data_out) peer.data_out->arm(on);
        for (ReceiverSlot* slot : {peer.requests_in, peer.data_in})
            if (Receiver* r = slot->receiver.load(std::memory_order_acquire)) r->arm(on);
    }
}

Code PointToPoint::health() const {
    for (auto& [rank, peer] : peers_)
        for (const Sender* sender : {peer.requests_out, peer.data_out}) {
            const Code code = sender ? sender->health() : Code::ok;
            if (code != Code::ok && code != Code::peer_lost) return code;
        }
    return Code::ok;
}

std::string PointToPoint::describe(const Transfer& t) const {
    const std::string what =
        fmt::format("{} of {} bytes with tag {} {} rank {}", t.sends ? "send" : "receive", t.bytes,
                    t.user_tag, t.sends ? "to" : "from",
                    t.peer == any_source ? std::string("any") : std::to_string(t.peer));
    const std::string unexpected = t.sends ? "" : unexpected_.describe();
    return unexpected.empty() ? what : fmt::format("{}; {}", what, unexpected);
}

}  // namespace tutti
