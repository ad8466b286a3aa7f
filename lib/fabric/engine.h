// A port at work: its peers, and the channels that run over it.
//
// Any thread may come in; an owner flag lets one in at a time. Whoever publishes something to send
// puts its flow on the ready list first and tries the flag second; whoever gives the flag back
// looks at the list afterwards. So nothing published is left lying, and nobody waits.
//
// The port's events only write things down: what follows from them is done in settle(), when the
// library is not on the stack.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/flow.h"
#include "fabric/slot_board.h"
#include "os/library_fds.h"
#include "transport/peer_limits.h"
#include "transport/posted/ready_list.h"
#include "transport/posted/retired.h"
#include "transport/transport.h"

namespace tutti::fabric {

/// What an engine tells its transport, from whichever thread came in, without the owner flag.
class EngineEvents {
public:
    virtual ~EngineEvents() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    virtual void lost(Rank peer, const std::string& cause) = 0;
};

/// How a rank's ports are reached.
struct Contact {
    Rank rank = nobody;
    Address address;
};

class FabricEngine final : public std::enable_shared_from_this<FabricEngine>, private PortEvents {
public:
    struct Options {
        Rank rank = 0;
        Rank size = 1;
        uint64_t nonce = 0;
        std::size_t max_message_bytes = 0;
        int doorbell_fd = -1;
        Reactor* reactor = nullptr;  // whoever sleeps polls it; has wake_fd()
        const Retired* retired = nullptr;
        EngineEvents* events = nullptr;
        PeerLimits limits = {};
        int64_t patience_ms = 5000;  // for the library to let go of an operation's memory
    };
    explicit FabricEngine(const Options& options) : options_(options) {}
    ~FabricEngine() override;

    Result<> open_port(PortFactory& factory);
    const Bytes& address() const { return port_->address(); }
    const PortLimits& limits() const { return port_->limits(); }
    int wake_fd() const {
        PortDoorbell* const bell = port_->doorbell();
        return bell ? bell->wake_fd() : -1;
    }

    Result<std::unique_ptr<Sender>> open(const ChannelId& id, ByteView port, uint64_t nonce);
    /// That peer's process is known to be dead. Also while another thread is in, and waits for it.
    void mark_failed(Rank peer);
    /// As Transport's.
    Result<> add_memory(std::byte* data, std::size_t bytes);
    void remove_memory(std::byte* data, std::size_t bytes);
    /// Sends and receives what is possible now; nothing if another thread is in.
    void progress();
    /// Progress of a rank that may compute, ten times a second, by the service thread alone.
    void tick();
    /// wake_fd() is readable.
    void woken();
    /// As Transport's.
    void before_sleep();

    /// Closing: begin takes the engine for good; step is true once every peer has what was sent;
    /// end lets go of the peers. The port stays for channels that are still read.
    void begin_close(Deadline deadline);
    bool close_step();
    void end_close(Deadline deadline);

    // For the channels.
    Code health(const Flow& flow) const { return flow.peer.health.load(std::memory_order_acquire); }
    void kick(Flow& flow);
    void arm(bool on);
    void cancel_sends(Flow& flow);
    void cancel_receives(Flow& flow);
    void close_sender(Flow& flow);
    void close_receiver(Flow& flow);
    void reject(Peer& peer, const std::string& cause);
    void place_next(Flow& flow);

    // For flat groups. A board is the engine's from join(), with the members' port of that number,
    // to leave().
    Result<> join(SlotBoard& board, std::span<const Contact> contacts, std::size_t port);
    void leave(const SlotBoard& board);
    /// What a thread waits for: a member's contribution.
    struct Awaited {
        std::size_t member = 0;
        uint64_t number = 0, turn = 0;
        Tag tag;
    };
    /// Sends what is unsent, and looks whether it comes: a few times, if nobody else is in. Returns
    /// a message of an earlier call that this rank has not read, and so never will: nullptr is
    /// well.
    const ReceiveQueue::Slot* exchange(SlotBoard& board, FlatStream& stream,
                                       const Awaited& awaited);
    /// Such a message, if nobody waits.
    const ReceiveQueue::Slot* stray(FlatStream& stream, const Tag& now);
    void cancel(FlatStream& stream);

private:
    class Guard;
    struct News {
        std::vector<Flow*> opened;
        std::vector<std::pair<Rank, std::string>> lost;
    };
    using Slot = ReceiveQueue::Slot;
    using SlotState = ReceiveQueue::State;

    // Ownership.
    bool enter() { return owner_.take(closed_); }
    void leave();
    void deliver(const News& news);
    News& news();
    void turn();
    void poll() {
        if (++polls_ == ignored_from_) watch(false);
        if (port_->progress(*this)) armed_ = false;
    }
    void tidy();
    void settle() {
        const bool settled = losing_.empty() && leaving_.empty() && to_fetch_.empty();
        if (!settled) settle_what_came();
    }
    void settle_what_came();
    void arm_port();
    void count_sleepers(int change);
    void stay_watched();
    void watch(bool on);
    void wake(Sleeper& sleeper);
    bool wait_for(Peer& peer, const std::function<bool()>& pending, const char* failure);

    // Peers and flows.
    Peer& peer_of(Rank rank);
    Result<> connect(Peer& peer, ByteView port, uint64_t nonce);
    Result<Peer*> reach(Rank rank, ByteView port, uint64_t nonce);
    Flow* find(Rank peer, uint32_t comm, uint16_t lane);
    Flow* find_or_add(Peer& peer, uint32_t comm, uint16_t lane);
    void half_closed(Flow& flow);
    bool in_use(const Flow& flow) const;
    void forget_flows();
    void forget(Flow& flow);
    void lose(Peer& peer, const std::string& cause, bool is_news, Culprit culprit = Culprit::peer);
    void drop_peer(Peer& peer);
    void drop_condemned();
    void leave_if_done(Peer& peer);

    // Sending.
    void flush();
    bool say(Peer& peer);
    bool say(Peer& peer, Kind kind);
    void owe(Peer& peer, uint8_t what);
    bool send_next(Flow& flow);
    bool send_message(Flow& flow);
    bool send_credits(Flow& flow);
    void send_late_credits();
    Header header(Kind kind, const Peer& peer) const;
    Header header(Kind kind, const Flow& flow) const;
    /// The library had no room for it: nothing more before the next poll. Others may have some.
    bool busy(const Peer& peer) const { return peer.busy_in == polls_; }
    bool accepted(Progress result, Peer& peer);
    void complete(Flow& flow, uint64_t position, bool gone);
    void allow(Flow& flow);
    void send_from_copy(Flow& flow, uint64_t position);
    void send_contribution(SlotBoard& board, FlatStream& stream);
    void send_contributions();

    // Receiving.
    bool arrived(const Arrival& arrival) override;
    void sent(void* context, Code code) override;
    void fetched(void* context, Code code) override;
    void lost(Rank peer, const std::string& cause, Culprit culprit) override;
    bool belongs_here(const Header& header, const Arrival& arrival);
    void take_hello(Peer& peer, const Header& header, const Arrival& arrival);
    bool take_data(Peer& peer, const Header& header, const Arrival& arrival);
    bool take_late(Peer& peer, const Header& header);
    void take_bye(Peer& peer, const Header& header);
    void take_contribution(const Header& header, const Arrival& arrival);
    SlotBoard* find_board(uint32_t comm);
    FlatStream* find_stream(const Flow& flow);
    static void add_flow(FlatStream& stream, Flow& flow);
    bool take_credits(Flow& flow, uint32_t credits);
    void announce(Flow& flow);
    bool place(Flow& flow, uint64_t position, const Arrival& arrival);
    bool copy(Flow& flow, uint64_t position, const Arrival& arrival);
    static std::byte* unless_on_device(ReceiveQueue& in, std::byte* offered);
    bool find_place(Slot& slot, std::byte* offered);
    bool take_cell(Slot& slot);
    bool fetch(Slot& slot);
    void finish(Slot& slot);
    void drop(ReceiveQueue& in);
    void reclaim(ReceiveQueue& in);
    bool save_offered(Slot& slot);
    void fetch_to_cell(Slot& slot);
    void break_rules(Peer& peer, const std::string& cause);

    static constexpr std::size_t cached_flows = 64;  // looked up without hashing

    const Options options_;
    std::unique_ptr<Port> port_;
    SecondPath* second_path_ = nullptr;  // the port's, if it has one
    std::optional<LibraryFds> fds_;      // once the port is open
    std::atomic<int> marks_due_{0};      // of what the library may have opened lately
    int ticks_ = 0;
    Bytes hello_;
    OwnerFlag owner_;
    std::atomic<bool> closed_{false};
    std::atomic<int> delivering_{0};
    std::mutex condemned_mutex_;
    std::vector<std::pair<Rank, int64_t>> condemned_;  // to be dropped by who is in from then on
    std::atomic<bool> any_condemned_{false};
    ReadyList<Flow> ready_;
    std::atomic<bool> contributions_added_{false};

    // The owner's.
    std::unordered_map<Rank, std::unique_ptr<Peer>> peers_;
    std::unordered_map<Rank, std::unordered_map<uint64_t, std::unique_ptr<Flow>>> flows_;
    std::array<Flow*, cached_flows> recent_{};
    std::unordered_map<uint32_t, SlotBoard*> boards_;  // by communicator
    SlotBoard* recent_board_ = nullptr;
    bool contributions_held_ = false;  // some could not go
    std::vector<Flow*> forgotten_;     // without a half left; they go when nothing is under way
    std::vector<Peer*> talking_;       // with something due
    std::vector<Peer*> leaving_;       // that have said bye, until they have heard farewell
    std::vector<Slot*> to_fetch_;
    struct Loss {
        Peer* peer;
        std::string cause;
        Culprit culprit;
    };
    std::vector<Loss> losing_;                            // found in an event
    std::vector<std::pair<Peer*, Header>> late_credits_;  // for retired communicators
    std::unique_ptr<News> news_;
    int sleepers_ = 1;  // who waits to be found, too, until the first peer has
    bool armed_ = false, moved_ = false, closing_ = false;
    uint64_t polls_ = 1;
    bool watched_ = true;         // our descriptor, by whoever sleeps
    uint64_t ignored_from_ = 0;   // the poll with which that ends; 0: none
    std::vector<Flow*> held_up_;  // of busy peers, while the others have their turn
    bool strangers_ = false;
};

/// Waits for the owner flag: the owner never blocks for long. Not held if closed.
class FabricEngine::Guard {
public:
    explicit Guard(FabricEngine& engine) : engine_(engine), held_(engine.enter()) {}
    ~Guard() {
        if (held_) engine_.leave();
    }
    Guard(const Guard&) = delete;
    explicit operator bool() const { return held_; }

private:
    FabricEngine& engine_;
    const bool held_;
};

}  // namespace tutti::fabric
