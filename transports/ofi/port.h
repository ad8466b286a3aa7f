// A port over libfabric: one endpoint of reliable datagrams, one completion queue. Over sockets
// there is a second endpoint, and with it a second connection to each peer, for small messages that
// cross one of the peer's: two that share a connection wait for each other in the kernel.
//
// Small messages go from a buffer of ours to a buffer of theirs, over sockets all of the engine's.
// Large ones are announced; who wants the payload posts a tagged receive for it and then grants it,
// so that it goes from the caller's memory to the caller's memory wherever the provider can do
// that, and never waits unexpected in the provider.
#pragma once

#include <memory>
#include <optional>

#include "transports/ofi/buffers.h"
#include "transports/ofi/completions.h"
#include "transports/ofi/payloads.h"
#include "transports/ofi/peers.h"
#include "transports/ofi/wake.h"

namespace tutti::ofi {

struct PortOptions {
    ProviderWish wish;
    Rank rank = 0;
    Rank size = 1;
    // The engine's: large enough that a message's own cost does not count, small enough that a
    // payload is still in the cache when it is reduced.
    std::size_t max_message_bytes = 256 * 1024;
    std::optional<std::size_t> eager_bytes;  // what suits the provider
    bool register_all = false;               // also where the provider does not want it (tests)
};

class OfiPort final : public fabric::Port,
                      private fabric::PortDoorbell,
                      private fabric::PortMemory,
                      private fabric::SecondPath,
                      private fabric::PayloadMover {
public:
    static Result<std::unique_ptr<OfiPort>> open(const fi_info& info, const PortOptions& options,
                                                 fabric::PortEvents& events);
    ~OfiPort() override;

    const fabric::PortLimits& limits() const override { return limits_; }
    const Bytes& address() const override { return address_; }
    Result<> connect(Rank peer, ByteView address) override;
    void disconnect(Rank peer) override;
    fabric::Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context) override;
    fabric::Progress fetch(void* hold, std::byte* where, std::size_t bytes, void* context) override;
    void release(void* hold) override;
    bool progress() override;
    void flush(Deadline deadline) override;
    fabric::PortDoorbell* doorbell() override { return this; }
    fabric::PortMemory* memory() override { return this; }
    fabric::SecondPath* second_path() override { return this; }
    fabric::PayloadMover* payload_mover() override { return this; }

private:
    int wake_fd() const override { return wake_.fd(); }
    bool arm() override;
    void drain() override { wake_.drain(); }
    Result<> add_memory(std::byte* data, std::size_t bytes) override;
    void remove_memory(std::byte* data, std::size_t bytes) override;
    fabric::Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, unsigned way) override;
    bool move(void* context, std::byte* where) override;

    // Copying this much costs less than two pieces and waiting for their end.
    static constexpr std::size_t copied_bytes = 8192;

    struct QueuedControl {
        OfiPeer* peer = nullptr;
        Prefix prefix;
    };

    OfiPort(Objects objects, const PortOptions& options, fabric::PortEvents& events);
    Result<> prepare();

    // The end of peers, and of the port.
    void mark_lost(OfiPeer& peer, const std::string& cause, Culprit culprit = Culprit::peer);
    void drop_waiting(OfiPeer& peer);
    void check_peers();
    void fail_port(std::string_view cause);
    void close_endpoint();

    // Completions.
    void handle(const CqEntry& completion);
    void failed(const CqEntry& completion);

    // Sending.
    fabric::Progress post(Staged& staged);
    fabric::Progress inject(Staged& staged);
    fabric::Progress send_copied(OfiPeer& peer, const std::byte* header, const std::byte* data,
                                 std::size_t bytes, bool second);
    Staged* take_eager(OfiPeer& peer, const std::byte* header, std::size_t bytes);
    fabric::Progress send_in_place(Staged& staged, const std::byte* data, std::size_t bytes,
                                   void* context);
    fabric::Progress announce(OfiPeer& peer, const std::byte* header, const std::byte* data,
                              std::size_t bytes, void* context);
    fabric::Progress refused(OfiPeer& peer, long code, std::string_view what, std::size_t bytes);
    void send_control(OfiPeer& peer, Kind kind, uint64_t number, uint64_t bytes);
    bool try_send_control(const QueuedControl& control);
    bool is_behind() const {
        return !control_.empty() || !granted_.empty() || first_.is_behind() || second_.is_behind();
    }
    bool retry();
    void granted(OfiPeer& peer, const Prefix& prefix);
    enum class Left : uint8_t { yes, no_room };
    Left send_payload(PayloadOut& out);
    void finish(PayloadOut& out, Code code);

    // Receiving.
    void post_more(ReceiveBuffers& buffers);
    void arrived(BounceBuffer& bounce, std::size_t bytes);
    bool handle_message(BounceBuffer& bounce, std::size_t bytes);
    bool deliver_eager(BounceBuffer& bounce, const Prefix& prefix);
    void deliver_announced(OfiPeer& peer, const BounceBuffer& bounce, const Prefix& prefix,
                           std::size_t bytes);
    void fetched(PayloadIn& in, Code code);

    const PortOptions options_;
    fabric::PortEvents& events_;
    Objects objects_;
    WakeDescriptor wake_{objects_};
    OfiRegistrar registrar_{objects_};
    LibraryMemory memory_;
    OfiPeerTable peers_;
    fabric::PortLimits limits_;
    Bytes address_;
    std::string broken_;  // why the endpoint was closed before its time

    std::size_t injected_bytes_ = 0;  // messages up to here leave without telling
    bool two_pieces_ = false;         // a message may lie in two places
    SendBuffers sends_;
    ReceiveBuffers first_{objects_, memory_}, second_{objects_, memory_};
    Payloads payloads_;
    CompletionReader completions_{objects_, sends_};

    Queue<QueuedControl> control_;  // that found no room yet
    Queue<uint64_t> granted_;       // payloads that found no room yet, by number
    uint32_t turns_ = 0;
    int64_t looked_ns_ = 0;
};

}  // namespace tutti::ofi
