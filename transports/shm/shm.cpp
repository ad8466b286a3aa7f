// Processes of one host: channels in anonymous shared memory, passed over Unix sockets.
#include <atomic>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "transport/flat/flat_group.h"
#include "transports/catalog.h"
#include "transports/shm/flat_join.h"
#include "transports/shm/host_peers.h"
#include "transports/shm/watch.h"
#include "wait/event_fd.h"
#include "wait/pace.h"
#include "wait/reactor.h"

namespace tutti {
namespace {

constexpr int close_timeout_ms = 1000;
constexpr int64_t own_poll_after_ns = 20'000'000;

// Has the reactor destroy the acceptor, because that is allowed only on the thread that polls it.
// Polls here only if no other thread seems to, because other handlers may not expect to run on this
// thread.
void destroy_on_reactor(std::unique_ptr<net::Acceptor> acceptor, Reactor& reactor,
                        Deadline deadline) {
    struct Errand {
        UniqueFd due;
        std::unique_ptr<net::Acceptor> acceptor;
        std::atomic<bool> done{false};
    };
    auto errand = std::make_shared<Errand>();
    errand->acceptor = std::move(acceptor);
    if (auto due = make_event_fd(true)) errand->due = std::move(*due);
    const auto added = reactor.add(errand->due.get(), EPOLLIN, [errand, &reactor](uint32_t) {
        reactor.remove(errand->due.get());
        errand->acceptor.reset();
        errand->done.store(true, std::memory_order_release);
    });
    if (!added) {
        log::debug("shm: closing the listener at once: {}", added.error().message);
        return;
    }
    const int64_t start_ns = now_ns();
    Pace pace(Deadline::after_ms(deadline.left_ms(close_timeout_ms) + 1), {.sleep_us = 100});
    while (!errand->done.load(std::memory_order_acquire) && pace.pause())
        if (now_ns() - start_ns > own_poll_after_ns) reactor.poll(0);
    // Out of time, or no thread polls.
    if (!errand->done.load(std::memory_order_acquire)) reactor.poll(0);
}

class ShmTransport final : public Transport {
public:
    explicit ShmTransport(const TransportContext& context)
        : context_(context),
          key_{context.secret, "shm/" + context.job},
          neighbours_(std::make_shared<shm::Neighbours>(context.rank, context.doorbell_fd)),
          groups_(context_, key_, arena_, neighbours_),
          peers_(std::make_shared<shm::HostPeers>(context, arena_, neighbours_)),
          watch_(std::make_shared<shm::Watch>(
              context.rank, context.size, key_,
              [this](std::span<const shm::EndedProcess> ended) { report(ended); })) {}
    ~ShmTransport() override {
        ShmTransport::close(Deadline::after_ms(close_timeout_ms));
        watch_->join();
    }

    std::string_view name() const override { return "shm"; }
    const Capabilities& capabilities() const override { return capabilities_; }
    Result<> listen() override;
    std::string address() const override { return address_; }
    bool may_reach(const PeerAddress& peer) const override {
        return !peer.address.empty() && peer.host_id == context_.host_id;
    }
    Result<std::unique_ptr<Sender>> open(const ChannelId& id, const PeerAddress& peer,
                                         Deadline deadline) override;
    void add_peers(std::span<const PeerAddress> peers) override;
    bool has_ended(Rank peer) const override { return watch_->has_ended(peer); }
    void peer_gone(Rank peer) override { peers_->forget_unless_connected(peer); }
    void retire(uint32_t comm) override { groups_.host()->retire(comm); }
    void progress() override {}  // each peer reads its memory itself
    IntrinsicProvider* intrinsics() override { return &flat_; }
    void close(Deadline deadline) override;

private:
    void report(std::span<const shm::EndedProcess> ended);

    const TransportContext context_;
    const net::AuthKey key_;
    Capabilities capabilities_ = mapped_capabilities(0.06);
    const std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
    const std::shared_ptr<shm::Neighbours> neighbours_;
    shm::GroupJoiner groups_;
    FlatProvider flat_{shm::FlatMember::limits,
                       [this](const GroupRequest& group, Deadline deadline) {
                           return groups_.join(group, deadline);
                       }};
    std::shared_ptr<shm::HostPeers> peers_;
    const std::shared_ptr<shm::Watch> watch_;
    std::string address_;
    std::unique_ptr<net::Acceptor> acceptor_;
};

Result<> ShmTransport::listen() {
    // Fails here rather than in the first call.
    if (const auto memory = make_shared_memory("tutti-probe", page_bytes, page_bytes); !memory) {
        Error error = memory.error();
        capabilities_.lacking = error.code == Code::unsupported;
        error.advice += fmt::format("{}set TUTTI_TRANSPORT=tcp, which needs no shared memory",
                                    error.advice.empty() ? "" : "; or ");
        return tl::unexpected<Error>(std::move(error));
    }
    TUTTI_ASSIGN(const std::string token, net::random_hex(16));
    address_ = "tutti-" + token;
    TUTTI_ASSIGN(UniqueFd listener, net::listen_unix(address_));
    // Captures no reference to this transport: the last call of the handler may come after its
    // destruction.
    auto handler = [peers = peers_, groups = groups_.host(), watch = watch_](UniqueFd socket,
                                                                             Bytes in) {
        const auto hello = shm::decode_hello(in);
        if (!hello)
            log::warn(wrap(hello.error(), "shm: refused a connection"));
        else if (hello->kind == shm::HelloKind::pair)
            peers->accept(std::move(socket), *hello);
        else if (hello->kind == shm::HelloKind::group)
            groups->request(std::move(socket), *hello);
        else
            watch->give_row(std::move(socket), *hello);
    };
    acceptor_ = std::make_unique<net::Acceptor>(*context_.reactor, std::move(listener), key_,
                                                std::move(handler), net::Acceptor::Options{});
    return {};
}

Result<std::unique_ptr<Sender>> ShmTransport::open(const ChannelId& id, const PeerAddress& peer,
                                                   Deadline deadline) {
    TUTTI_ASSIGN(const auto pair, peers_->get(peer, key_, deadline));
    return peers_->open(pair, id, deadline);
}

void ShmTransport::add_peers(std::span<const PeerAddress> peers) {
    if (!context_.starts_threads) return;
    std::vector<PeerAddress> here;
    for (const PeerAddress& peer : peers)
        if (may_reach(peer)) here.push_back(peer);
    watch_->start(std::move(here));
}

void ShmTransport::report(std::span<const shm::EndedProcess> ended) {
    for (const auto& process : ended) peers_->process_ended(process.rank);
    for (const auto& process : ended) context_.sink->peer_lost(process.rank, process.cause);
}

void ShmTransport::close(Deadline deadline) {
    watch_->close(deadline);
    if (acceptor_) destroy_on_reactor(std::move(acceptor_), *context_.reactor, deadline);
    groups_.host()->close();
    // Nothing to flush: sent messages are in memory that the readers map.
    peers_->close(deadline);
    neighbours_->close();
}

}  // namespace

std::unique_ptr<Transport> make_shm_transport(const TransportContext& context) {
    return std::make_unique<ShmTransport>(context);
}

}  // namespace tutti
