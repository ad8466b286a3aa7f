// A peer that speaks the TCP transport's wire by hand: it passes the handshake, then sends what it
// likes.
#pragma once

#include <cstring>

#include "net/acceptor.h"
#include "net/socket.h"
#include "transport/joined.h"
#include "transports/tcp/frame.h"

namespace tutti::test {

inline constexpr JoinedTransport tcp_kind{"tcp", make_tcp_transport};
inline constexpr std::size_t large = tcp::max_message_bytes;

inline Deadline soon() {
    return Deadline::after_ms(patience_ms);
}

inline Buffer frame(const tcp::Header& header, const Buffer& payload = {}) {
    Buffer out = ByteWriter().put(header).take();
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
}

inline Buffer open_frame(uint16_t lane, uint32_t comm = 7) {
    return frame({.magic = tcp::Header::magic_of(tcp::Kind::open), .comm = comm, .lane = lane});
}

inline Buffer data_frame(uint16_t lane, const Tag& tag, const Buffer& payload) {
    return frame({.magic = tcp::Header::magic_of(tcp::Kind::data),
                  .comm = 7,
                  .lane = lane,
                  .bytes = static_cast<uint32_t>(payload.size()),
                  .tag = tag},
                 payload);
}

inline Buffer joined_frames(std::initializer_list<Buffer> frames) {
    Buffer out;
    for (const Buffer& one : frames) out.insert(out.end(), one.begin(), one.end());
    return out;
}

class RawPeer {
public:
    RawPeer(TestEndpoint& to, Rank as, const std::string& secret = "a secret") {
        const auto address = net::parse_host_port(to.address.address);
        REQUIRE(address);
        auto connected = net::connect_tcp(*address, {.deadline = soon()});
        REQUIRE(connected);
        fd_ = std::move(*connected);
        const Bytes hello = ByteWriter().put(tcp::protocol_version).put(as).take();
        const auto met = net::introduce(fd_.get(), {secret, "tcp/test"}, hello, soon());
        INFO((met ? "" : met.error().message));
        REQUIRE(met);
        if (!net::recv_all(fd_.get(), std::as_writable_bytes(std::span(&answer_, 1)), soon()))
            answer_ = {};
    }

    /// 0: it hung up.
    tcp::Answer answer() const { return answer_; }

    /// False if the other side hung up.
    bool send(ByteView bytes) { return net::send_all(fd_.get(), bytes, soon()).has_value(); }
    tcp::Header read_header() {
        tcp::Header header;
        REQUIRE(net::recv_all(fd_.get(), std::as_writable_bytes(std::span(&header, 1)), soon()));
        return header;
    }
    Buffer read(std::size_t bytes) {
        Buffer out(bytes);
        REQUIRE(net::recv_all(fd_.get(), out, soon()));
        return out;
    }
    void hang_up() { fd_.reset(); }

private:
    UniqueFd fd_;
    tcp::Answer answer_{};
};

/// The receiving half of a lane that rank `peer` opened on communicator 7.
inline std::unique_ptr<Receiver> await_receiver(TestEndpoint& endpoint, Rank peer, uint16_t lane) {
    std::unique_ptr<Receiver> out;
    REQUIRE(eventually({&endpoint}, [&] {
        out = endpoint.sink.take({.peer = peer, .comm = 7, .lane = lane});
        return out != nullptr;
    }));
    return out;
}

inline bool holds(const Receiver::PeekedMessage& message, const Buffer& data) {
    return message.data && std::memcmp(message.data, data.data(), data.size()) == 0;
}

}  // namespace tutti::test
