// A loopback port that behaves as badly as a port may: messages overtake each other, the library
// has no room, it does nothing at once, and loses payloads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "fabric/fabric.h"
#include "fabric/header.h"
#include "transport/joined.h"
#include "transport/loopback/port.h"

namespace tutti::test {

/// A setting that the test changes while the engines' threads read it.
template <typename T>
class Knob {
public:
    Knob(T value) : value_(value) {}
    Knob(const Knob& other) : value_(T(other)) {}
    Knob& operator=(const Knob& other) {
        value_.store(T(other), std::memory_order_relaxed);
        return *this;
    }
    operator T() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<T> value_;
};

/// The library misbehaves in each of these ways in so many of a hundred calls.
struct Manners {
    Knob<unsigned> busy = 0u, slow = 0u;
    Knob<unsigned> pieces = 0u;  // payloads that come in pieces, and must be fetched in their event
    Knob<bool> reorder = false;
    Knob<bool> fetch_fails = false;
    Knob<bool> never_sent = false;  // payloads stay with the library for ever
    Knob<bool> moves = false;       // the port moves pending payloads when it is asked to
    Knob<bool> send_fails = false;
    Knob<Rank> no_room_for = nobody;
    Knob<int> wake_fd = -1;  // readable until it is heard
    Knob<bool> cannot_register = false;
    Knob<bool> takes_device = false;
};
inline Manners manners;
inline std::minstd_rand fake_random{1};
inline std::string fake_version = "1.0";
inline int64_t fake_patience_ms = 200;
inline PeerLimits fake_limits;

/// Threads of two ports may draw at the same time.
inline std::mutex fake_random_mutex;
inline std::size_t draw_below(std::size_t end) {
    const std::lock_guard lock(fake_random_mutex);
    return fake_random() % end;
}
inline void seed_draws(unsigned seed) {
    const std::lock_guard lock(fake_random_mutex);
    fake_random.seed(seed);
}
inline bool happens(unsigned percent) {
    return draw_below(100) < percent;
}

/// Stands between a loopback port and its engine. It reports the loopback's events to the engine
/// later, in another order, or never.
class FakePort final : private fabric::PortEvents,
                       public LoopbackPort,
                       private fabric::PortDoorbell,
                       private fabric::SecondPath,
                       private fabric::PayloadMover,
                       private fabric::PortDevices {
public:
    explicit FakePort(fabric::PortEvents& engine)
        : LoopbackPort(static_cast<fabric::PortEvents&>(*this)), engine_(engine) {
        limits_.eager_bytes = limits_.copied_bytes = 2000;
    }

    void disconnect(Rank peer) override {
        LoopbackPort::disconnect(peer);
        for (void* context : take_of(under_way_, peer)) engine_.sent(context, Code::peer_lost);
        for (void* context : take_of(fetching_, peer)) engine_.fetched(context, Code::peer_lost);
        std::erase_if(waiting_, [&](void* hold) {
            const bool of_peer = sender_of(hold) == peer;
            if (of_peer) release(hold);
            return of_peer;
        });
    }
    fabric::Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context) override {
        return send(peer, header, data, bytes, context, bytes <= limits_.eager_bytes);
    }
    fabric::Progress fetch(void* hold, std::byte* where, std::size_t bytes,
                           void* context) override {
        if (in_pieces_.contains(hold))
            fetched_late_ += !delivering_;
        else if (happens(manners.busy))
            return fabric::Progress::busy;
        if (manners.cannot_register)
            engine_.lost(sender_of(hold), "see `ulimit -l`", fabric::Culprit::own);
        if (manners.fetch_fails || manners.cannot_register) return fabric::Progress::failed;
        const auto result = LoopbackPort::fetch(hold, where, bytes, context);
        if (result != fabric::Progress::done || !happens(manners.slow)) return result;
        fetching_.emplace(context, sender_of(hold));
        return fabric::Progress::pending;
    }
    void release(void* hold) override {
        in_pieces_.erase(hold);
        LoopbackPort::release(hold);
    }
    bool progress() override {
        bool moved = LoopbackPort::progress();
        for (const Rank rank : std::exchange(cut_, {}))
            engine_.lost(rank, "it hung up", fabric::Culprit::peer);
        for (void* context : std::exchange(done_, {})) {
            moved = true;
            if (under_way_.erase(context) > 0) engine_.sent(context, Code::ok);
        }
        for (const auto& [context, peer] : std::exchange(fetching_, {}))
            engine_.fetched(context, Code::ok);
        for (int i = 0; i < 4 && !waiting_.empty(); ++i) {
            const std::size_t ahead = manners.reorder ? draw_below(waiting_.size()) : 0;
            void* const hold = waiting_[ahead];
            waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(ahead));
            deliver_badly(hold);
            moved = true;
        }
        return moved;
    }
    fabric::PortDoorbell* doorbell() override { return this; }
    fabric::SecondPath* second_path() override { return this; }
    fabric::PayloadMover* payload_mover() override { return this; }
    fabric::PortDevices* devices() override { return this; }

    /// The test reads here which way each message took that crossed one of the peer's.
    const std::vector<unsigned>& ways_to(Rank peer) { return ways_[peer]; }
    /// Payloads in pieces that were not fetched when they should have been.
    int fetched_late() const { return fetched_late_; }

    int to_device() const { return to_device_; }

    /// A message that no engine made.
    void inject(const fabric::Header& header, const Buffer& payload = {}) {
        auto message = std::make_shared<Message>();
        std::memcpy(message->header.data(), &header, sizeof header);
        message->bytes = payload.size();
        message->copy = payload;
        const std::lock_guard lock(mutex_);
        inbox_.push_back(std::move(message));
    }

private:
    // The loopback port's events.
    bool arrived(const fabric::Arrival& arrival) override {
        waiting_.push_back(arrival.hold);
        return true;
    }
    void sent(void* context, Code code) override {
        if (code == Code::ok && !manners.never_sent && under_way_.erase(context) > 0)
            engine_.sent(context, code);
    }
    void fetched(void*, Code) override {}
    void lost(Rank peer, const std::string& cause, fabric::Culprit culprit) override {
        engine_.lost(peer, cause, culprit);
    }

    // The optional interfaces.
    int wake_fd() const override { return manners.wake_fd; }
    bool arm() override { return true; }
    void drain() override {
        uint64_t rings = 0;
        if (::read(manners.wake_fd, &rings, sizeof rings) < 0) return;
    }
    fabric::Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, unsigned way) override {
        const auto result = send(peer, header, data, bytes, nullptr);
        if (result != fabric::Progress::busy) ways_[peer].push_back(way);
        return result;
    }
    bool move(void* context, std::byte* where) override {
        if (!manners.moves) return false;
        // A fetch has put everything there, and only does not say so yet.
        if (!under_way_.contains(context)) return fetching_.contains(context);
        const std::lock_guard lock(mutex_);
        for (const Pending& send : pending_)
            if (send.context == context && send.message->data) send.message->data = where;
        return true;
    }
    bool takes_device(Rank) const override { return manners.takes_device; }
    fabric::Progress send_from_device(Rank peer, const std::byte* header, const std::byte* data,
                                      std::size_t bytes, void* context) override {
        return send(peer, header, data, bytes, context, bytes == 0);
    }
    fabric::Progress fetch_to_device(void* hold, std::byte* where, std::size_t bytes,
                                     void* context) override {
        const auto result = fetch(hold, where, bytes, context);
        to_device_ += result != fabric::Progress::busy;
        return result;
    }

    fabric::Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context, bool copies) {
        if (manners.send_fails) {
            cut_.push_back(peer);
            return fabric::Progress::failed;
        }
        if (peer == manners.no_room_for || happens(manners.busy)) return fabric::Progress::busy;
        const auto result = post(peer, header, data, bytes, context, copies);
        const bool late = result == fabric::Progress::done && happens(manners.slow);
        if (late) done_.push_back(context);
        if (result != fabric::Progress::pending && !late) return result;
        if (context) under_way_.emplace(context, peer);
        return fabric::Progress::pending;
    }
    void deliver_badly(void* hold) {
        const Message& message = *held_.at(hold);
        const bool announced = message.copy.empty() && message.bytes > 0;
        fabric::Arrival arrival;
        arrival.header = message.header.data();
        arrival.data = message.copy.empty() ? nullptr : message.copy.data();
        arrival.bytes = message.bytes;
        // Some libraries cannot keep what came with its header.
        const bool may_stay = announced || happens(50);
        arrival.hold = may_stay ? hold : nullptr;
        arrival.at_once = announced && happens(manners.pieces);
        if (arrival.at_once) in_pieces_.insert(hold);
        delivering_ = true;
        const bool keep = engine_.arrived(arrival);
        delivering_ = false;
        if (!keep) release(hold);
    }
    Rank sender_of(void* hold) const {
        Rank rank = nobody;
        std::memcpy(&rank, held_.at(hold)->header.data() + fabric::sender_offset, sizeof rank);
        return rank;
    }
    static std::vector<void*> take_of(std::map<void*, Rank>& contexts, Rank peer) {
        std::vector<void*> taken;
        std::erase_if(contexts, [&](const auto& one) {
            if (one.second == peer) taken.push_back(one.first);
            return one.second == peer;
        });
        return taken;
    }

    fabric::PortEvents& engine_;
    std::vector<Rank> cut_;                       // peers that hang up with the next progress()
    std::deque<void*> waiting_;                   // arrivals that the engine has not heard of
    std::set<void*> in_pieces_;                   // arrivals that it must fetch in their event
    std::vector<void*> done_;                     // contexts of sends whose event is late
    std::map<void*, Rank> under_way_, fetching_;  // contexts of all that is pending, and the peers
    std::map<Rank, std::vector<unsigned>> ways_;
    bool delivering_ = false;
    int fetched_late_ = 0;
    std::atomic<int> to_device_ = 0;
};

/// The ports that were opened last, in order.
inline std::vector<FakePort*> fake_ports;

class FakeFactory final : public fabric::PortFactory {
public:
    explicit FakeFactory(std::string version) : version_(std::move(version)) {}
    std::string_view name() const override { return "fake"; }
    std::string version() const override { return version_; }
    std::string path() const override { return "memory"; }
    Result<std::unique_ptr<fabric::Port>> open(fabric::PortEvents& events) override {
        auto port = std::make_unique<FakePort>(events);
        fake_ports.push_back(port.get());
        return port;
    }

private:
    const std::string version_;
};

inline std::unique_ptr<Transport> make_fake_transport(const TransportContext& context) {
    return fabric::make_fabric_transport(
        context, std::make_unique<FakeFactory>(fake_version),
        {.name = "fake", .patience_ms = fake_patience_ms, .limits = fake_limits});
}

/// Good manners, before and after.
struct GoodManners {
    GoodManners() { reset(); }
    ~GoodManners() { reset(); }
    static void reset() {
        manners = {};
        fake_version = "1.0";
        fake_patience_ms = 200;
        fake_limits = {};
        fake_ports.clear();
    }
};

inline constexpr JoinedTransport fake_kind{"fake", make_fake_transport};

}  // namespace tutti::test
