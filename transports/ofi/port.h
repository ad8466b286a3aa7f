// A port over libfabric: one endpoint of reliable datagrams, one completion queue. Over sockets
// there is a second endpoint, and with it a second connection to each peer, for small messages that
// cross one of the peer's: two that share a connection wait for each other in the kernel.
//
// Small messages go from a buffer of ours to a buffer of theirs, over sockets all of the engine's.
// Large ones are announced; who wants the payload posts a tagged receive for it and then grants it,
// so that it goes from the caller's memory to the caller's memory wherever the provider can do
// that, and never waits unexpected in the provider.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "transports/ofi/operations.h"
#include "transports/ofi/queue.h"
#include "transports/ofi/slots.h"

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
                      private fabric::SecondPath {
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
    bool move(void* context, std::byte* where) override;
    void release(void* hold) override;
    bool progress(fabric::PortEvents& events) override;
    void flush(Deadline deadline) override;
    fabric::PortDoorbell* doorbell() override { return this; }
    fabric::PortMemory* memory() override { return this; }
    fabric::SecondPath* second_path() override { return this; }

private:
    int wake_fd() const override {
        return edges_ ? edges_.get() : timer_ ? timer_.get() : objects_.wake_fd;
    }
    bool arm() override;
    void heard() override;
    Result<> add_memory(std::byte* data, std::size_t bytes) override;
    void remove_memory(std::byte* data, std::size_t bytes) override;
    fabric::Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, unsigned way) override;

    // Copying this much costs less than two pieces and waiting for their end.
    static constexpr std::size_t copied_bytes = 8192;

    struct Control {
        Peer* peer = nullptr;
        Prefix prefix;
    };

    OfiPort(Objects objects, const PortOptions& options, fabric::PortEvents& events);
    Result<> prepare();
    Result<> watch_edges();

    // Peers.
    Peer* find(Rank rank) const;
    Peer* sender_of(const Prefix& prefix);
    Peer& add_peer(Rank rank, uint64_t port);
    Result<fi_addr_t> insert(const Peer& peer, ByteView where);
    void reach(Peer& peer);
    void lose(Peer& peer, const std::string& cause,
              fabric::Culprit culprit = fabric::Culprit::peer);
    void drop_waiting(Peer& peer);
    bool waits_for(const Peer& peer);
    void look_after_peers();
    void give_up(std::string_view cause);
    void silence() const;
    void close_endpoint();

    // Completions.
    bool next(Completion& completion);
    bool read_completions();
    bool read_error();
    void left(Operation& operation);
    void handle(const Completion& completion);
    void failed(const Completion& completion);

    // Sending.
    Prefix prefix_to(const Peer& peer, Kind kind, uint64_t number, uint64_t bytes) const;
    Staged* take_staged(Peer& peer);
    void give_staged(Staged& staged);
    ssize_t hand_over(Staged& staged);
    fabric::Progress post(Staged& staged);
    fabric::Progress inject(Staged& staged);
    fabric::Progress send_copied(Peer& peer, const std::byte* header, const std::byte* data,
                                 std::size_t bytes, bool second);
    Staged* take_eager(Peer& peer, const std::byte* header, std::size_t bytes);
    fabric::Progress send_in_place(Staged& staged, const std::byte* data, std::size_t bytes,
                                   void* context);
    fabric::Progress announce(Peer& peer, const std::byte* header, const std::byte* data,
                              std::size_t bytes, void* context);
    void leaves(Peer& peer);
    fabric::Progress refused(Peer& peer, long code, std::string_view what, std::size_t bytes);
    void say(Peer& peer, Kind kind, uint64_t number, uint64_t bytes);
    bool say_now(const Control& control);
    bool is_behind() const {
        return !control_.empty() || !granted_.empty() || first_.posted < first_.goal ||
               second_.posted < second_.goal;
    }
    bool retry();
    void granted(Peer& peer, const Prefix& prefix);
    enum class Left : uint8_t { yes, no_room };
    Left send_payload(Outgoing& out);
    void finish(Outgoing& out, Code code);

    // Receiving.
    Result<> grow(Receives& receives);
    Result<> post_bounces(Receives& receives);
    void post_more(Receives& receives);
    void arrived(Bounce& bounce, std::size_t bytes);
    bool take_message(Bounce& bounce, std::size_t bytes);
    bool deliver_eager(Bounce& bounce, const Prefix& prefix);
    void deliver_announced(Peer& peer, const Bounce& bounce, const Prefix& prefix,
                           std::size_t bytes);
    void fetched(Incoming& in, Code code);

    const PortOptions options_;
    fabric::PortEvents* events_;
    Objects objects_;
    UniqueFd timer_;  // wakes who sleeps where the provider cannot, or may not
    UniqueFd edges_;  // of a descriptor that stays readable, and the timer
    Memory memory_;
    uint64_t port_ = 0;  // our number
    fabric::PortLimits limits_;
    Bytes address_;
    std::string broken_;  // why the endpoint was closed before its time

    std::vector<std::unique_ptr<Peer>> peers_;  // all there ever were: operations point to them
    std::vector<Peer*> by_rank_;                // the present ones

    std::vector<Block> blocks_;
    std::size_t staged_bytes_ = 0;
    std::size_t injected_bytes_ = 0;  // messages up to here leave without telling
    bool two_pieces_ = false;         // a message may lie in two places
    std::deque<Bounce> bounces_;
    Receives first_, second_;
    std::deque<Staged> staged_;
    std::vector<Staged*> free_staged_;
    Slots<Outgoing> outgoing_;
    Slots<Incoming> incoming_;

    Queue<Control> control_;   // that found no room yet
    Queue<uint64_t> granted_;  // payloads that found no room yet, by number
    uint32_t turns_ = 0;
    int64_t looked_ns_ = 0;
    std::size_t leaving_ = 0;        // sends to those who are there that are not finished
    Queue<Completion> completions_;  // read, and not handled yet
};

}  // namespace tutti::ofi
