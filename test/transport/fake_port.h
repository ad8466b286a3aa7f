// A library of messages that behaves as badly as a port may: they overtake each other, it has no
// room, nothing is done at once, and payloads cannot be had. All in one process, one thread at a
// time.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>

#include "fabric/fabric.h"
#include "fabric/header.h"
#include "transport/joined.h"

namespace tutti::test {

/// The library misbehaves in each of these ways in so many of a hundred calls.
struct Manners {
    unsigned busy = 0, slow = 0;
    unsigned pieces = 0;  // payloads that come in pieces, and must be fetched in their event
    bool reorder = false;
    bool fetch_fails = false;
    bool never_sent = false;  // payloads stay with the library for ever
    bool moves = false;       // what is pending
    bool send_fails = false;
    Rank no_room_for = nobody;
    int wake_fd = -1;  // readable until it is heard
    bool cannot_register = false;
    bool takes_device = false;
};
inline Manners manners;
inline std::minstd_rand fake_random{1};
inline std::string fake_version = "1.0";
inline int64_t fake_patience_ms = 200;
inline PeerLimits fake_limits;

inline std::recursive_mutex fake_library;
using FakeLock = std::lock_guard<std::recursive_mutex>;

inline bool happens(unsigned percent) {
    return fake_random() % 100 < percent;
}

class FakePort final : public fabric::Port,
                       private fabric::PortDoorbell,
                       private fabric::SecondPath,
                       private fabric::PayloadMover,
                       private fabric::PortDevices {
public:
    explicit FakePort(fabric::PortEvents& events) : events_(events) {
        limits_.eager_bytes = limits_.copied_bytes = 2000;
        address_ = ByteWriter().put(this).take();
    }

    ~FakePort() override {
        const FakeLock lock(fake_library);
        while (!peers_.empty()) part(peers_.begin());
        for (FakePort* other : known_)
            std::erase_if(other->peers_, [this](const auto& p) { return p.second == this; });
    }

    const fabric::PortLimits& limits() const override { return limits_; }
    const Bytes& address() const override { return address_; }
    Result<> connect(Rank peer, ByteView address) override {
        const FakeLock lock(fake_library);
        ByteReader in(address);
        peers_[peer] = in.get<FakePort*>();
        peers_[peer]->known_.push_back(this);
        return {};
    }
    void disconnect(Rank peer) override {
        const FakeLock lock(fake_library);
        const auto found = peers_.find(peer);
        if (found == peers_.end()) return;
        FakePort* other = found->second;
        part(found);
        for (auto& [context, to] : std::exchange(under_way_, {}))
            to == other ? events_.sent(context, Code::peer_lost)
                        : void(under_way_.emplace(context, to));
        for (void* context : std::exchange(fetching_, {}))
            events_.fetched(context, Code::peer_lost);
    }

    fabric::Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context) override {
        return send(peer, header, data, bytes, context, bytes <= limits_.eager_bytes);
    }
    fabric::Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, unsigned way) override {
        const auto result = send(peer, header, data, bytes, nullptr);
        const FakeLock lock(fake_library);
        if (result != fabric::Progress::busy) ways_[peer].push_back(way);
        return result;
    }
    bool takes_device(Rank) const override { return manners.takes_device; }
    fabric::Progress send_from_device(Rank peer, const std::byte* header, const std::byte* data,
                                      std::size_t bytes, void* context) override {
        return send(peer, header, data, bytes, context, bytes == 0);
    }
    fabric::Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context, bool eager) {
        const FakeLock lock(fake_library);
        const auto to = peers_.find(peer);
        if (to == peers_.end()) return fabric::Progress::failed;
        if (manners.send_fails) {
            cut_.push_back(peer);
            return fabric::Progress::failed;
        }
        if (peer == manners.no_room_for || happens(manners.busy)) return fabric::Progress::busy;
        Message message{.from = this, .header = {header, header + fabric::header_bytes}};
        if (eager && bytes > 0) message.payload.assign(data, data + bytes);
        message.data = eager ? nullptr : data;
        message.bytes = bytes;
        message.context = context;
        to->second->inbox_.push_back(std::move(message));
        if (eager && !happens(manners.slow)) return fabric::Progress::done;
        if (eager) done_.push_back(context);
        if (context) under_way_.emplace(context, to->second);
        return fabric::Progress::pending;
    }
    fabric::Progress fetch(void* hold, std::byte* where, std::size_t bytes,
                           void* context) override {
        const FakeLock lock(fake_library);
        auto& held = *static_cast<Message*>(hold);
        if (held.in_pieces) {
            fetched_late_ += !delivering_;
        } else if (happens(manners.busy)) {
            return fabric::Progress::busy;
        }
        for (const auto& [rank, port] : peers_)
            if (manners.cannot_register && port == held.from)
                events_.lost(rank, "see `ulimit -l`", fabric::Culprit::own);
        if (manners.fetch_fails || manners.cannot_register || !held.from)
            return fabric::Progress::failed;
        std::memcpy(where, held.data, bytes);
        held.from->let_go(std::exchange(held.context, nullptr));
        if (!happens(manners.slow)) return fabric::Progress::done;
        fetching_.push_back(context);
        return fabric::Progress::pending;
    }
    fabric::Progress fetch_to_device(void* hold, std::byte* where, std::size_t bytes,
                                     void* context) override {
        const auto result = fetch(hold, where, bytes, context);
        to_device_ += result != fabric::Progress::busy;
        return result;
    }
    bool move(void* context, std::byte* where) override {
        const FakeLock lock(fake_library);
        if (!manners.moves) return false;
        // A fetch has put everything there, and only does not say so yet.
        bool moved = std::count(fetching_.begin(), fetching_.end(), context) > 0;
        const auto sent = under_way_.find(context);
        if (sent == under_way_.end()) return moved;
        const auto retarget = [&](Message& message) {
            if (message.from == this && message.context == context) message.data = where;
        };
        for (Message& message : sent->second->inbox_) retarget(message);
        for (const auto& held : sent->second->held_) retarget(*held);
        return true;
    }
    void release(void* hold) override {
        const FakeLock lock(fake_library);
        auto* held = static_cast<Message*>(hold);
        if (held->from && held->data) held->from->let_go(held->context);
        std::erase_if(held_, [&](const auto& one) { return one.get() == held; });
    }

    bool progress() override {
        const FakeLock lock(fake_library);
        bool moved = false;
        for (const Rank rank : std::exchange(cut_, {}))
            events_.lost(rank, "it hung up", fabric::Culprit::peer);
        for (void* context : std::exchange(done_, {})) {
            moved = true;
            if (under_way_.erase(context) > 0) events_.sent(context, Code::ok);
        }
        for (void* context : std::exchange(fetching_, {})) events_.fetched(context, Code::ok);
        for (int i = 0; i < 4 && !inbox_.empty(); ++i) {
            const std::size_t ahead = manners.reorder ? fake_random() % inbox_.size() : 0;
            Message message = std::move(inbox_[ahead]);
            inbox_.erase(inbox_.begin() + static_cast<std::ptrdiff_t>(ahead));
            deliver(std::move(message));
            moved = true;
        }
        return moved;
    }
    int wake_fd() const override { return manners.wake_fd; }
    bool arm() override { return true; }
    void heard() override {
        uint64_t rings = 0;
        if (::read(manners.wake_fd, &rings, sizeof rings) < 0) return;
    }
    void flush(Deadline) override {}
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
        const FakeLock lock(fake_library);
        const auto* first = reinterpret_cast<const std::byte*>(&header);
        inbox_.push_back({.from = nullptr,
                          .header = {first, first + sizeof header},
                          .payload = payload,
                          .bytes = payload.size()});
    }

private:
    struct Message {
        FakePort* from = nullptr;
        Bytes header;
        Bytes payload;
        const std::byte* data = nullptr;
        std::size_t bytes = 0;
        void* context = nullptr;
        bool in_pieces = false;
    };
    void let_go(void* context) {
        if (context && !manners.never_sent) done_.push_back(context);
    }
    void part(std::map<Rank, FakePort*>::iterator peer) {
        FakePort* other = peer->second;
        peers_.erase(peer);
        std::erase(other->known_, this);
        other->forget(this);
        for (const auto& [rank, port] : other->peers_)
            if (port == this) other->cut_.push_back(rank);
    }
    void forget(FakePort* other) {
        std::erase_if(inbox_, [&](const Message& m) { return m.from == other; });
        for (auto& held : held_)
            if (held->from == other) held->from = nullptr;
    }
    void deliver(Message&& message) {
        auto held = std::make_unique<Message>(std::move(message));
        fabric::Arrival arrival;
        arrival.header = held->header.data();
        arrival.data = held->payload.empty() ? nullptr : held->payload.data();
        arrival.bytes = held->bytes;
        // Some libraries cannot keep what came with its header.
        const bool may_stay = held->data || happens(50);
        arrival.hold = may_stay ? held.get() : nullptr;
        arrival.at_once = held->in_pieces = held->data && happens(manners.pieces);
        delivering_ = true;
        const bool keep = events_.arrived(arrival);
        delivering_ = false;
        if (keep)
            held_.push_back(std::move(held));
        else if (held->data && held->from)
            held->from->let_go(held->context);
    }

    fabric::PortEvents& events_;
    fabric::PortLimits limits_;
    Bytes address_;
    std::map<Rank, FakePort*> peers_;
    std::vector<FakePort*> known_;
    std::vector<Rank> cut_;  // of peers that have hung up
    std::deque<Message> inbox_;
    std::vector<std::unique_ptr<Message>> held_;
    std::vector<void*> done_, fetching_;
    std::map<void*, FakePort*> under_way_;
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
