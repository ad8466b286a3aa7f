// A port over a library that has plain messages and tagged ones, and no rendezvous of its own.
//
// Small messages are copied from a send buffer into the peer's receive buffer. Large ones are
// announced; a receiver that wants the payload posts a tagged receive for it and then grants it. So
// the payload goes from the caller's memory to the caller's memory if the library can do that, and
// never arrives unexpected.
//
// If there is a second endpoint, and with it a second connection to each peer, small messages that
// cross one of the peer's use it: two crossing messages that share a connection wait for each other
// in the kernel.
#pragma once

#include <string_view>

#include "fabric/messages/buffers.h"
#include "fabric/messages/messenger.h"
#include "fabric/messages/payloads.h"
#include "fabric/messages/peers.h"

namespace tutti::fabric {

/// The Messenger is a member of the port, which calls it directly: see MessengerContract.
template <typename Messenger>
class MessagePort final : public Port,
                          private PortDoorbell,
                          private PortMemory,
                          private SecondPath,
                          private PayloadMover {
    static_assert(MessengerContract<Messenger>);

public:
    /// messenger: the arguments of its constructor.
    template <typename... Made>
    MessagePort(Rank rank, Rank size, PortEvents& events, Made&&... messenger)
        : events_(events), messenger_(std::forward<Made>(messenger)...), peers_(rank, size) {
        ByteWriter address;
        messenger_.publish(address.put(peers_.port()));
        address_ = address.take();
    }
    // Closes the library before any memory is freed: then no operation uses the memory any more.
    ~MessagePort() override { messenger_.close(); }
    /// Call before using the port.
    Result<> open();

    const PortLimits& limits() const override { return messenger_.limits().port; }
    const Bytes& address() const override { return address_; }
    Result<> connect(Rank peer, ByteView address) override;
    void disconnect(Rank peer) override;
    Progress send(Rank peer, const std::byte* header, const std::byte* data, std::size_t bytes,
                  void* context) override;
    Progress fetch(void* hold, std::byte* where, std::size_t bytes, void* context) override;
    void release(void* hold) override;
    bool progress() override;
    void flush(Deadline deadline) override;
    PortDoorbell* doorbell() override { return this; }
    PortMemory* memory() override { return this; }
    SecondPath* second_path() override { return this; }
    PayloadMover* payload_mover() override { return this; }

private:
    int wake_fd() const override { return messenger_.wake_fd(); }
    bool arm() override {
        return again_.empty() && control_.empty() && payloads_.granted.empty() && messenger_.arm();
    }
    void drain() override { messenger_.drain(); }
    Result<> add_memory(std::byte* data, std::size_t bytes) override {
        return broken_.empty() ? messenger_.library_memory().add(data, bytes) : Result<>{};
    }
    void remove_memory(std::byte* data, std::size_t bytes) override {
        messenger_.library_memory().remove(data, bytes);
    }
    Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                           std::size_t bytes, unsigned way) override;
    bool move(void* context, std::byte* where) override;

    struct QueuedControl {
        MessagePeer* peer = nullptr;
        Prefix prefix;
    };

    // The loss of peers, and of the port.
    void mark_lost(MessagePeer& peer, const std::string& cause, Culprit culprit = Culprit::peer);
    void drop_waiting(MessagePeer& peer);
    void check_peers();
    void note_reached(MessagePeer& peer);
    void fail_port(std::string_view cause);

    // Completions.
    bool take_completions();
    void handle(const OpCompletion& completion);

    // Sending.
    bool can_send(const MessagePeer* peer) const {
        return peer && !peer->gone && peer->connected && broken_.empty();
    }
    Progress post(StagedMessage& staged);
    StagedMessage* take_staged(MessagePeer& peer, const Prefix& prefix, const std::byte* header);
    Progress send_copied(MessagePeer& peer, const std::byte* header, const std::byte* data,
                         std::size_t bytes, bool second);
    PayloadOut* borrow(StagedMessage& staged, const std::byte* data, std::size_t bytes,
                       void* context);
    Progress send_in_place(StagedMessage& staged, const std::byte* data, std::size_t bytes,
                           void* context);
    Progress announce(MessagePeer& peer, const std::byte* header, const std::byte* data,
                      std::size_t bytes, void* context);
    bool send_later(StagedMessage& staged, int code);
    bool send_again(StagedMessage& staged);
    Progress refused(MessagePeer& peer, int code, std::size_t bytes);
    void send_control(MessagePeer& peer, Prefix::Kind kind, uint64_t number, uint64_t bytes);
    bool try_send_control(const QueuedControl& control);
    bool retry();
    void granted(MessagePeer& peer, const Prefix& prefix);
    bool try_send_payload(PayloadOut& out);
    void finish(PayloadOut& out, Code code);

    // Receiving.
    void post_more(ReceiveBuffers& buffers);
    void received(BounceBuffer& bounce, const OpCompletion& completion);
    bool handle_message(BounceBuffer& bounce, std::size_t bytes);
    void deliver_announced(MessagePeer& peer, const BounceBuffer& bounce, const Prefix& prefix,
                           std::size_t bytes);
    void fetched(PayloadIn& in, Code code);

    PortEvents& events_;
    Messenger messenger_;
    MessagePeers peers_;
    Bytes address_;
    std::string broken_;  // the reason why the endpoint was closed early

    SendBuffers sends_;
    ReceiveBuffers first_{messenger_.library_memory(), false},
        second_{messenger_.library_memory(), true};
    Payloads payloads_;
    Queue<StagedMessage*> again_;   // messages whose connection broke before it carried anything
    Queue<QueuedControl> control_;  // messages for which there was no room yet
    uint32_t turns_ = 0;
    int64_t looked_ns_ = 0;
};

}  // namespace tutti::fabric

#include "fabric/messages/port_losses.h"
#include "fabric/messages/port_receive.h"
#include "fabric/messages/port_send.h"
