// An endpoint at work: messages in, channels and news to communicators, sleeping and waking.
#include "comm/endpoint.h"

#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "comm/backoff.h"
#include "net/serving.h"
#include "store/tree.h"

namespace tutti {
namespace {

constexpr int service_tick_ms = 1000;
constexpr int sleep_ms = 100;  // between looks at deadlines
// The first byte of a control message: who it is for.
enum class Topic : uint8_t { bootstrap, news };

void ring_fd(int fd) {
    const uint64_t one = 1;
    // EAGAIN: it is ringing already.
    while (::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

}  // namespace

Endpoint::~Endpoint() {
    leave(Deadline::after_ms(1000));
}

uint32_t Endpoint::machine_ranks() const {
    const uint32_t known = bootstrap_->machine_ranks();
    return known ? known : static_cast<uint32_t>(config_.size);
}

void Endpoint::leave(Deadline deadline) {
    if (leaving_.exchange(true)) return;
    while (!control_.flushed() && !deadline.passed()) {
        pump();
        ::usleep(100);
    }
    for (const auto& transport : transports_) transport->close(deadline);
    stop_ = true;
    kick();
    if (thread_.joinable()) thread_.join();
    acceptor_.reset();
    control_.close();
    if (store_ && published_) {
        for (const std::string& name : {key(config_.rank), key(config_.rank) + "/owner"})
            if (auto removed = store_->remove(name); !removed)
                log::debug("rank {}: {}", config_.rank, removed.error().message);
    }
    store_.reset();
}

void Endpoint::add(uint32_t comm, EndpointClient* client) {
    const std::lock_guard lock(clients_mutex_);
    clients_[comm] = client;
    for (auto& [id, receiver] : std::exchange(early_channels_, {})) opened(id, std::move(receiver));
    for (auto& [from, news] : std::exchange(early_news_, {}))
        if (news.comm == comm) client->news(from, news);
    for (auto& [peer, cause] : std::exchange(early_losses_, {})) client->peer_lost(peer, cause);
}

void Endpoint::remove(uint32_t comm) {
    const std::lock_guard lock(clients_mutex_);
    clients_.erase(comm);
}

Result<const Endpoint::PeerRecord*> Endpoint::peer(Rank rank, Deadline deadline) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = peers_.find(rank); found != peers_.end()) return &found->second;
    }
    TUTTI_ASSIGN(const std::string text, store_->get(key(rank), deadline));
    auto record = PeerRecord::decode(text);
    if (!record)
        return fail_rank(Code::system, rank, "rank {}'s record in the store is malformed", rank);
    const std::lock_guard lock(mutex_);
    return &(peers_[rank] = std::move(*record));
}

Result<std::pair<std::unique_ptr<Sender>, const Transport*>> Endpoint::open(const ChannelId& id,
                                                                            Deadline deadline) {
    const net::ServeWhileWaiting serving(manual() ? &reactor_ : nullptr);
    TUTTI_ASSIGN(const PeerRecord* record, peer(id.peer, deadline));
    std::string tried;
    for (const auto& transport : transports_) {
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", transport->name());
        const auto address = record->addresses.find(transport->name());
        if (address == record->addresses.end()) continue;
        const PeerAddress to{id.peer, record->host_id, address->second};
        if (!transport->may_reach(to)) continue;
        auto sender = transport->open(id, to, deadline);
        if (sender) return std::pair{std::move(*sender), transport.get()};
        if (sender.error().code != Code::unsupported)
            return wrap(sender.error(),
                        fmt::format("connecting to rank {} by {}", id.peer, transport->name()));
        tried += fmt::format(" ({})", sender.error().message);
    }
    return fail_rank(
        Code::unsupported, id.peer,
        "no transport reaches rank {} (host {}); tried: {}. Add one to TUTTI_TRANSPORT", id.peer,
        record->host_id, tried);
}

void Endpoint::send_control(Rank to, const News& news) {
    Bytes message = news.encode();
    message.insert(message.begin(), static_cast<std::byte>(Topic::news));
    control_.send(to, message);
}

void Endpoint::flood_control(const News& news, Rank except) {
    Bytes message = news.encode();
    message.insert(message.begin(), static_cast<std::byte>(Topic::news));
    control_.flood(message, except);
}

void Endpoint::progress() {
    for (const auto& transport : transports_) transport->progress();
}

void Endpoint::pump() {
    if (manual()) reactor_.poll(0);
}

void Endpoint::sleep(int timeout_ms) {
    if (manual()) {
        reactor_.poll(timeout_ms);
    } else if (data_reactor_.poll(timeout_ms) == 0 && timeout_ms > 0) {
        // Another thread may be the one that sleeps there: then this one must not spin.
        ::usleep(20);
    }
}

void Endpoint::ring() {
    ring_fd(doorbell_.get());
}

void Endpoint::kick() {
    if (!kicked_.exchange(true)) ring_fd(kick_.get());
}

// ---- from peers --------------------------------------------------------------------------------

void Endpoint::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    {
        const std::lock_guard lock(clients_mutex_);
        const auto client = clients_.find(id.comm);
        if (client == clients_.end()) {
            early_channels_.emplace_back(id, std::move(receiver));
            return;
        }
        client->second->opened(id, std::move(receiver));
    }
    ring();
}

void Endpoint::peer_lost(Rank peer, const std::string& cause) {
    const std::lock_guard lock(clients_mutex_);
    if (clients_.empty()) {
        early_losses_.emplace_back(peer, cause);
        bootstrap_step([&] {
            if (bootstrap_->state() != Bootstrap::State::done)
                bootstrap_->fail_with(
                    {Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)});
        });
        return;
    }
    for (auto& [comm, client] : clients_) client->peer_lost(peer, cause);
}

void Endpoint::control_message(Rank from, ByteView message) {
    if (message.empty()) return;
    if (static_cast<Topic>(message[0]) == Topic::bootstrap)
        return bootstrap_step([&] { bootstrap_->receive(from, message.subspan(1)); });
    const auto news = News::decode(message.subspan(1));
    if (!news) {
        log::warn("rank {}: malformed control message from rank {}", config_.rank, from);
        return;
    }
    const std::lock_guard lock(clients_mutex_);
    const auto client = clients_.find(news->comm);
    if (client != clients_.end()) {
        client->second->news(from, *news);
    } else if (!leaving_) {
        early_news_.emplace_back(from, *news);
    }
}

void Endpoint::control_closed(Rank peer, const std::string& cause) {
    if (!leaving_) peer_lost(peer, fmt::format("its process ended ({})", cause));
}

// ---- the service thread
// --------------------------------------------------------------------------

bool Endpoint::serve_clients(bool& moved) {
    const std::lock_guard lock(clients_mutex_);
    bool busy = false;
    for (auto& [comm, client] : clients_) busy |= client->drive(moved);
    return busy;
}

void Endpoint::arm_clients(bool on) {
    const std::lock_guard lock(clients_mutex_);
    for (auto& [comm, client] : clients_) client->arm(on);
}

void Endpoint::serve() {
    Backoff backoff;
    while (!stop_) {
        kicked_ = false;
        bool moved = false;
        if (!serve_clients(moved)) {
            reactor_.poll(service_tick_ms);
            backoff.reset();
            continue;
        }
        backoff.set_crowded(Backoff::crowded(machine_ranks()));
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::look) reactor_.poll(0);
        if (turn != Backoff::Turn::sleep) continue;

        // Announced first, then looked once more: whatever comes after that look rings.
        arm_clients(true);
        moved = false;
        if (serve_clients(moved) && !moved && !kicked_) {
            reactor_.modify(data_reactor_.fd(), EPOLLIN);
            reactor_.poll(sleep_ms);
            reactor_.modify(data_reactor_.fd(), 0);
        }
        arm_clients(false);
        backoff.woke();
    }
}

}  // namespace tutti
