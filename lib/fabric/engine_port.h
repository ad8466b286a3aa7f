// An engine's wrapper of its port.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/flow.h"

namespace tutti::fabric {

/// Sends messages to peers. If the library has no room for a peer, that peer is busy until the next
/// poll. If the library cannot send to a peer, or the peer broke the protocol, this records the
/// loss; the owner drops the peer when it is no longer inside a call of the library.
class EnginePort {
public:
    struct Loss {
        Peer* peer;
        std::string cause;
        Culprit culprit;
    };
    explicit EnginePort(Rank rank) : rank_(rank) {}

    Result<> open(PortFactory& factory, PortEvents& events) {
        TUTTI_ASSIGN(port_, factory.open(events));
        second_path_ = port_->second_path();
        payload_mover_ = port_->payload_mover();
        return {};
    }
    void close() { port_.reset(); }
    bool is_open() const { return port_ != nullptr; }
    Port& port() const { return *port_; }

    Header header(Kind kind, const Peer& peer) const {
        Header out;
        out.magic = Header::magic_of(kind);
        out.sender = rank_;
        out.nonce = peer.nonce;
        return out;
    }
    Header header(Kind kind, const Peer& peer, const ChannelId& id) const {
        Header out = header(kind, peer);
        out.comm = id.comm;
        out.lane = id.lane;
        return out;
    }
    /// Sends a payload that is small enough to be copied at once. False: try again after a poll.
    bool send(Peer& peer, const Header& header, const std::byte* payload = nullptr) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(&header);
        return accepted(port_->send(peer.rank, bytes, payload, header.bytes, nullptr), peer);
    }
    /// As send(), for a message that crosses one of the peer's; way as SecondPath's.
    bool send_crossing(Peer& peer, const Header& header, const std::byte* payload, unsigned way) {
        if (!second_path_) return send(peer, header, payload);
        const auto* const bytes = reinterpret_cast<const std::byte*>(&header);
        return accepted(second_path_->send_crossing(peer.rank, bytes, payload, header.bytes, way),
                        peer);
    }
    /// As PayloadMover::move().
    bool move(void* context, std::byte* where) {
        return payload_mover_ && payload_mover_->move(context, where);
    }
    /// Records the library's answer to a send. False: it had no room.
    bool accepted(Progress result, Peer& peer) {
        if (result == Progress::failed) mark_lost(peer, "sending to it failed");
        if (result == Progress::busy) peer.busy_in = polls_;
        return result != Progress::busy;
    }
    /// True: send nothing more to that peer before the next poll. Other peers may have room.
    bool is_busy(const Peer& peer) const { return peer.busy_in == polls_; }
    void begin_poll() { ++polls_; }

    void mark_lost(Peer& peer, std::string cause, Culprit culprit = Culprit::peer) {
        losses_.push_back({&peer, std::move(cause), culprit});
    }
    void report_protocol_error(Peer& peer, const std::string& cause) {
        mark_lost(peer, "protocol error: " + cause);
    }
    bool any_losses() const { return !losses_.empty(); }
    std::vector<Loss> take_losses() { return std::exchange(losses_, {}); }

private:
    const Rank rank_;
    std::unique_ptr<Port> port_;
    // The port's optional features; nullptr: it lacks them.
    SecondPath* second_path_ = nullptr;
    PayloadMover* payload_mover_ = nullptr;
    uint64_t polls_ = 1;
    std::vector<Loss> losses_;
};

}  // namespace tutti::fabric
