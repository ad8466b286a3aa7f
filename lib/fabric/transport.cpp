// The transport of a fabric: its ports' engines, the service thread's timer for them, and the
// addresses that ranks publish.
#include <sys/timerfd.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "base/fd.h"
#include "base/log.h"
#include "fabric/engine.h"
#include "fabric/fabric.h"
#include "fabric/flat_group.h"
#include "wait/pace.h"
#include "wait/reactor.h"

namespace tutti::fabric {
namespace {

constexpr long tick_ns = 100'000'000;
constexpr int64_t last_words_ms = 50;

uint64_t random_nonce() {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
}

class FabricTransport final : public Transport {
public:
    FabricTransport(const TransportContext& context, Result<std::unique_ptr<PortFactory>> factory,
                    const Settings& settings)
        : context_(context),
          factory_(std::move(factory)),
          settings_(settings),
          events_(context.sink) {
        capabilities_.credits = credits_per_channel;
        capabilities_.max_message_bytes = settings.max_message_bytes;
        capabilities_.latency_us = settings.latency_us;
        capabilities_.bandwidth_gbs = settings.bandwidth_gbs;
    }
    ~FabricTransport() override { close(Deadline::after_ms(1)); }

    std::string_view name() const override { return settings_.name; }
    const Capabilities& capabilities() const override { return capabilities_; }
    Result<> listen() override;
    std::string address() const override { return address_; }
    bool may_reach(const PeerAddress& peer) const override;
    Result<std::unique_ptr<Sender>> open(const ChannelId& id, const PeerAddress& peer,
                                         Deadline deadline) override;
    void retire(uint32_t comm) override { retired_.insert(comm); }
    void peer_gone(Rank peer) override {
        for (const auto& engine : engines_) engine->mark_failed(peer);
    }
    Result<> add_memory(std::byte* data, std::size_t bytes) override;
    void remove_memory(std::byte* data, std::size_t bytes) override;
    void progress() override;
    IntrinsicProvider* intrinsics() override { return flat_.get(); }
    void close(Deadline deadline) override;

private:
    Result<Address> parse(const PeerAddress& peer) const {
        auto address = decode_address(name(), (*factory_)->version(), peer.address);
        if (address) return address;
        return wrap(std::move(address).error(), fmt::format("the address of rank {}", peer.rank));
    }
    Result<> start_ticking();

    const TransportContext context_;
    const Result<std::unique_ptr<PortFactory>> factory_;
    const Settings settings_;
    Capabilities capabilities_;
    std::string address_;
    Retired retired_;
    SinkEvents events_;
    std::vector<std::shared_ptr<FabricEngine>> engines_;
    std::unique_ptr<IntrinsicProvider> flat_;
    UniqueFd ticks_;

    std::atomic<bool> closed_{false};
};

Result<> FabricTransport::listen() {
    if (!factory_) return tl::unexpected(factory_.error());
    Address address{.version = (*factory_)->version(), .nonce = random_nonce(), .ports = {}};
    for (int i = 0; i < context_.fabric_ports; ++i) {
        auto engine = std::make_shared<FabricEngine>(
            FabricEngine::Options{.rank = context_.rank,
                                  .size = context_.size,
                                  .nonce = address.nonce,
                                  .max_message_bytes = settings_.max_message_bytes,
                                  .doorbell_fd = context_.doorbell_fd,
                                  .retired = &retired_,
                                  .events = &events_,
                                  .limits = settings_.limits,
                                  .patience_ms = settings_.patience_ms});
        TUTTI_TRY(engine->open_port(**factory_));
        const PortLimits& limits = engine->limits();
        if (limits.max_message_bytes > 0)
            capabilities_.max_message_bytes =
                std::min(capabilities_.max_message_bytes, limits.max_message_bytes);
        if (limits.latency_us > 0) capabilities_.latency_us = limits.latency_us;
        if (limits.bandwidth_gbs > 0) capabilities_.bandwidth_gbs = limits.bandwidth_gbs;
        capabilities_.takes_devices |= limits.takes_devices;
        capabilities_.sockets |= limits.sockets;
        capabilities_.sockets_within |= limits.sockets_within;
        address.ports.push_back(engine->address());
        if (engine->wake_fd() >= 0)
            TUTTI_TRY(context_.data_reactor->add(
                engine->wake_fd(), EPOLLIN, [to = engine.get()](uint32_t) { to->on_doorbell(); }));
        engines_.push_back(std::move(engine));
    }
    if (engines_.front()->limits().copied_bytes >= flat_max_bytes)
        flat_ =
            make_flat_provider(engines_, [this](const PeerAddress& peer) { return parse(peer); });
    address_ = encode_address(name(), address);
    log::debug("rank {}: {} {} over {}", context_.rank, name(), address.version,
               (*factory_)->path());
    return start_ticking();
}

// The library moves nothing by itself, and peers may wait for a rank that computes: so a timer
// makes progress.
Result<> FabricTransport::start_ticking() {
    ticks_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    const itimerspec every{.it_interval = {0, tick_ns}, .it_value = {0, tick_ns}};
    if (!ticks_ || ::timerfd_settime(ticks_.get(), 0, &every, nullptr) != 0)
        return fail_errno(errno, "creating a timer");
    return context_.reactor->add(ticks_.get(), EPOLLIN, [this](uint32_t) {
        uint64_t count = 0;
        if (::read(ticks_.get(), &count, sizeof count) < 0) return;
        for (const auto& engine : engines_) engine->tick();
    });
}

// Two ranks with the same library may still have no path; open() finds out.
bool FabricTransport::may_reach(const PeerAddress& peer) const {
    return peer.address.starts_with(fmt::format("{} ", name()));
}

Result<std::unique_ptr<Sender>> FabricTransport::open(const ChannelId& id, const PeerAddress& peer,
                                                      Deadline deadline) {
    static_cast<void>(deadline);  // opening does not wait
    const auto refused = [&](Error error) {
        error.rank = peer.rank;
        return tl::unexpected(std::move(error));
    };
    auto address = parse(peer);
    if (!address) return refused(std::move(address).error());
    // Both sides choose the same pair of ports, if they have as many.
    const std::size_t stream = id.lane / lanes_per_stream;
    auto sender = engines_[stream % engines_.size()]->open(
        id, address->ports[stream % address->ports.size()], address->nonce);
    if (!sender) return refused(std::move(sender).error());
    return sender;
}

Result<> FabricTransport::add_memory(std::byte* data, std::size_t bytes) {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
        auto added = engines_[i]->add_memory(data, bytes);
        if (added) continue;
        while (i-- > 0) engines_[i]->remove_memory(data, bytes);
        return added;
    }
    return {};
}

void FabricTransport::remove_memory(std::byte* data, std::size_t bytes) {
    for (const auto& engine : engines_) engine->remove_memory(data, bytes);
}

void FabricTransport::progress() {
    for (const auto& engine : engines_) engine->progress();
}

void FabricTransport::close(Deadline deadline) {
    if (closed_.exchange(true)) return;
    if (ticks_) context_.reactor->remove(ticks_.get());
    for (const auto& engine : engines_) {
        if (engine->wake_fd() >= 0) context_.data_reactor->remove(engine->wake_fd());
        engine->begin_close(deadline);
    }
    const auto closed = [this] {
        bool all = true;
        for (const auto& engine : engines_) all &= engine->close_step();
        return all;
    };
    Pace pace(deadline, {.sleep_us = 50});
    while (!closed() && pace.pause()) {
    }
    for (const auto& engine : engines_) engine->end_close(Deadline::after_ms(last_words_ms));
}

}  // namespace

std::unique_ptr<Transport> make_fabric_transport(const TransportContext& context,
                                                 Result<std::unique_ptr<PortFactory>> factory,
                                                 const Settings& settings) {
    return std::make_unique<FabricTransport>(context, std::move(factory), settings);
}

}  // namespace tutti::fabric
