#include "transports/shm/pairs.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/reactor.h"
#include "net/socket.h"
#include "transport/shared_memory.h"

namespace tutti::shm {
namespace {

// Peers send a frame in one piece; one that stops in the middle must not hold the reactor.
constexpr int frame_timeout_ms = 1000;
constexpr int bye_timeout_ms = 100;

int peer_pid(int socket) {
    ucred credentials{};
    socklen_t bytes = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return 0;
    return credentials.pid;
}

Result<std::shared_ptr<const Doorbell>> make_doorbell(std::vector<UniqueFd> fds) {
    if (fds.size() != 1)
        return fail(Code::invalid, "shm: {} descriptors came instead of a doorbell", fds.size());
    // Whatever it is that the peer passed: ringing it must not block.
    const int flags = ::fcntl(fds[0].get(), F_GETFL);
    if (flags < 0 || ::fcntl(fds[0].get(), F_SETFL, flags | O_NONBLOCK) != 0)
        return fail_errno(errno, "shm: a peer's doorbell");
    return std::make_shared<const Doorbell>(std::move(fds[0]));
}

// True if there is something to read; false if nothing, an error at the connection's end.
Result<bool> has_news(int socket) {
    std::byte first;
    const ssize_t got = ::recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return true;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    return fail(Code::peer_lost, "its process has ended");
}

}  // namespace

Pairs::Pairs(const TransportContext& context)
    : context_(context), reported_(static_cast<std::size_t>(context.size)) {}

std::shared_ptr<Pair> Pairs::find(Rank peer) {
    const std::lock_guard lock(mutex_);
    for (const auto& pair : pairs_)
        if (pair->peer == peer && pair->doorbell) return pair;
    return nullptr;
}

Result<> Pairs::watch(const std::shared_ptr<Pair>& pair) {
    {
        const std::lock_guard lock(mutex_);
        pairs_.push_back(pair);
    }
    return context_.reactor->add(
        pair->socket.get(), EPOLLIN,
        [self = shared_from_this(), pair](uint32_t) { self->ready(pair); });
}

void Pairs::accept(UniqueFd socket, const Hello& hello) {
    const std::lock_guard news_lock(news_mutex_);
    if (closed_) return;
    if (hello.rank < 0 || hello.rank >= context_.size) {
        log::warn("shm: a connection claims to be rank {} of {}; dropped", hello.rank,
                  context_.size);
        return;
    }
    auto pair = std::make_shared<Pair>();
    pair->peer = hello.rank;
    pair->pid = peer_pid(socket.get());
    pair->socket = std::move(socket);
    auto sent = send(*pair, {.kind = NewsKind::doorbell}, {&context_.doorbell_fd, 1},
                     Deadline::after_ms(frame_timeout_ms));
    if (sent) sent = watch(pair);
    if (!sent) log::warn("shm: connection of rank {}: {}", hello.rank, sent.error().message);
}

Result<std::shared_ptr<Pair>> Pairs::get(const PeerAddress& peer, const net::AuthKey& key,
                                         Deadline deadline) {
    if (auto existing = find(peer.rank)) return existing;
    auto socket = net::connect_unix(peer.address, {.deadline = deadline});
    if (!socket)
        return fail_rank(Code::unsupported, peer.rank,
                         "shm: rank {} is not within reach (another container or network "
                         "namespace, or it has ended): {}",
                         peer.rank, socket.error().message);
    auto pair = std::make_shared<Pair>();
    pair->peer = peer.rank;
    pair->socket = std::move(*socket);
    pair->pid = peer_pid(pair->socket.get());

    const auto doing = [&] { return fmt::format("shm: connecting to rank {}", peer.rank); };
    const Bytes hello = encode(Hello{.kind = HelloKind::pair, .rank = context_.rank});
    if (auto met = net::introduce(pair->socket.get(), key, hello, deadline); !met)
        return wrap(std::move(met).error(), doing());
    TUTTI_TRY(send(*pair, {.kind = NewsKind::doorbell}, {&context_.doorbell_fd, 1}, deadline));
    auto answer = net::recv_fds(pair->socket.get(), max_frame_bytes, deadline);
    if (!answer) return wrap(std::move(answer).error(), doing());
    TUTTI_ASSIGN(const News news, decode_news(answer->body));
    if (news.kind != NewsKind::doorbell)
        return fail_rank(Code::invalid, peer.rank, "shm: rank {} sent news of kind {} first",
                         peer.rank, static_cast<int>(news.kind));
    TUTTI_ASSIGN(pair->doorbell, make_doorbell(std::move(answer->fds)));
    TUTTI_TRY(watch(pair));
    return pair;
}

Result<> Pairs::send(Pair& pair, const News& news, std::span<const int> fds, Deadline deadline) {
    const std::lock_guard lock(pair.send_mutex);
    auto sent = net::send_fds(pair.socket.get(), fds, encode(news), deadline);
    if (!sent && sent.error().rank == nobody) sent.error().rank = pair.peer;
    return sent;
}

void Pairs::ready(const std::shared_ptr<Pair>& pair) {
    const std::lock_guard lock(news_mutex_);
    if (closed_) return;
    if (auto taken = take_news(pair); !taken) lost(pair, taken.error().message);
}

Result<> Pairs::take_news(const std::shared_ptr<Pair>& pair) {
    TUTTI_ASSIGN(const bool any, has_news(pair->socket.get()));
    if (!any) return {};
    TUTTI_ASSIGN(auto message, net::recv_fds(pair->socket.get(), max_frame_bytes,
                                             Deadline::after_ms(frame_timeout_ms)));
    TUTTI_ASSIGN(const News news, decode_news(message.body));
    switch (news.kind) {
        case NewsKind::doorbell:
            return take_doorbell(*pair, std::move(message.fds));
        case NewsKind::channel:
            return take_channel(*pair, news, std::move(message.fds));
        case NewsKind::bye:
            pair->said_bye = true;
            return {};
    }
    return {};
}

Result<> Pairs::take_doorbell(Pair& pair, std::vector<UniqueFd> fds) {
    TUTTI_ASSIGN(auto doorbell, make_doorbell(std::move(fds)));
    const std::lock_guard lock(mutex_);
    if (pair.doorbell) return fail(Code::invalid, "shm: a second doorbell came");
    pair.doorbell = std::move(doorbell);
    return {};
}

Result<> Pairs::take_channel(Pair& pair, const News& news, std::vector<UniqueFd> fds) {
    if (fds.size() != 1 || !pair.doorbell)
        return fail(Code::invalid, "shm: {} descriptors came with a channel", fds.size());
    TUTTI_ASSIGN(auto memory, map_shared_memory(fds[0].get(), mapped_channel_bytes));
    context_.sink->opened(
        {.peer = pair.peer, .comm = news.comm, .lane = news.lane},
        std::make_unique<MappedReceiver>(MappedHalf{std::move(memory), pair.doorbell, pair.life}));
    return {};
}

void Pairs::lost(const std::shared_ptr<Pair>& pair, const std::string& cause) {
    context_.reactor->remove(pair->socket.get());
    {
        const std::lock_guard lock(mutex_);
        std::erase(pairs_, pair);
    }
    pair->life->gone.store(true, std::memory_order_release);
    // Whoever sleeps until that peer does something has to look at its channels' health.
    Doorbell own{UniqueFd(::fcntl(context_.doorbell_fd, F_DUPFD_CLOEXEC, 0))};
    own.ring();
    const auto rank = static_cast<std::size_t>(pair->peer);
    if (pair->said_bye || reported_[rank]) return;
    reported_[rank] = true;
    context_.sink->peer_lost(
        pair->peer, fmt::format("shm: rank {} (process {}): {}", pair->peer, pair->pid, cause));
}

void Pairs::close(Deadline deadline) {
    const std::lock_guard news_lock(news_mutex_);
    if (closed_) return;
    closed_ = true;
    std::vector<std::shared_ptr<Pair>> pairs;
    {
        const std::lock_guard lock(mutex_);
        pairs.swap(pairs_);
    }
    for (const auto& pair : pairs) {
        context_.reactor->remove(pair->socket.get());
        // A peer that does not even take these few bytes has stopped for good; do not wait long.
        const auto patience = Deadline::after_ms(deadline.left_ms(bye_timeout_ms) + 1);
        if (auto sent = send(*pair, {.kind = NewsKind::bye}, {}, patience); !sent)
            log::debug("shm: no bye to rank {}: {}", pair->peer, sent.error().message);
        pair->life->gone.store(true, std::memory_order_release);
        ::shutdown(pair->socket.get(), SHUT_RDWR);
    }
}

}  // namespace tutti::shm
