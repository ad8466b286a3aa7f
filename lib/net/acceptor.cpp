#include "net/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "net/resolve.h"
#include "net/serving.h"
#include "net/socket.h"

namespace tutti::net {
namespace {

constexpr uint32_t max_hello_bytes = 4096;
constexpr int accepts_per_turn = 64;
// Out of file descriptors: how long the acceptor stops watching the listener, which would otherwise
// stay readable and spin.
constexpr int64_t pause_ns = 50'000'000;
constexpr int64_t room_pause_ns = 5'000'000;  // if strangers hold all places
// An acceptor may hold this many unauthenticated connections even if the process is at its limit,
// so that members can still reach every acceptor.
constexpr std::size_t least_strangers = 4;
// After these fractions of the handshake's time, a stranger may be dropped for a new one.
constexpr int64_t silent_share = 2000, spoken_share = 100, starving_share = 10;
constexpr int64_t tell_ns = 10'000'000'000;  // between equal warnings

std::atomic<std::size_t> strangers{0};      // of all acceptors of the process
std::atomic<int64_t> starving_since_ns{0};  // 0: descriptors are available

// A connection that has not proved the secret yet.
struct Stranger {
    Stranger() { ++strangers; }
    Stranger(const Stranger&) = delete;
    ~Stranger() { --strangers; }
};

std::size_t most_strangers(std::size_t wanted) {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
    return std::min<std::size_t>(wanted, limit.rlim_cur / 8);
}

std::string origin_of(int fd) {
    SocketAddress peer;
    peer.bytes = sizeof peer.storage;
    const bool known =
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes) == 0;
    if (!known || peer.storage.ss_family == AF_UNIX) return "a process";
    return fmt::format("a process at {}", peer.host());
}

}  // namespace

struct Acceptor::Pending {
    enum class HandshakeStage : uint8_t { auth, length, hello };

    UniqueFd fd;
    AuthServer auth;
    int64_t since_ns;
    int64_t expires_ns;
    std::optional<Stranger> stranger{std::in_place};
    std::list<std::unique_ptr<Pending>>::iterator self{};
    HandshakeStage stage = HandshakeStage::auth;
    Bytes in{};  // the arrived part of the next wanted bytes
    uint32_t hello_bytes = 0;

    std::size_t wants() const {
        if (stage == HandshakeStage::auth) return auth.wants();
        return stage == HandshakeStage::length ? sizeof hello_bytes : hello_bytes;
    }
};

Acceptor::Acceptor(Reactor& reactor, UniqueFd listener, AuthKey key, Handler handler,
                   Options options)
    : reactor_(reactor),
      listener_(std::move(listener)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      key_(std::move(key)),
      handler_(std::move(handler)),
      options_(std::move(options)) {
    if (!timer_) {
        log::error(fail_errno(
            errno, "accept: cannot create a timer, so connections of silent peers stay open"));
    } else if (auto added = reactor_.add(timer_.get(), EPOLLIN, [this](uint32_t) { tick(); });
               !added) {
        log::error(wrap(added.error(), "accept"));
    }
    if (auto added = reactor_.add(listener_.get(), EPOLLIN, [this](uint32_t) { accept_ready(); });
        !added)
        log::error(wrap(added.error(), "accept: other processes cannot connect to this one"));
}

Acceptor::~Acceptor() {
    starving_since_ns = 0;  // no acceptor is left to update it
    reactor_.remove(listener_.get());
    if (timer_) reactor_.remove(timer_.get());
    for (const auto& pending : pending_) reactor_.remove(pending->fd.get());
}

int64_t Acceptor::starving_ns() {
    const int64_t since_ns = starving_since_ns;
    return since_ns == 0 ? 0 : now_ns() - since_ns;
}

void Acceptor::accept_ready() {
    for (int i = 0; i < accepts_per_turn; ++i) {
        if (!make_room()) {
            pause(room_pause_ns);
            break;
        }
        const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        const int error = fd >= 0 ? 0 : errno;
        if (fd >= 0) {
            starving_since_ns = 0;
            admit(UniqueFd(fd));
            continue;
        }
        if (error == EINTR || error == ECONNABORTED) continue;
        if (error == EAGAIN || error == EWOULDBLOCK)
            starving_since_ns = 0;
        else
            short_of_descriptors(error);
        break;
    }
    drop_stale();
}

// The connection stays in the kernel's queue. To serve it, this drops the oldest stranger that has
// had its fraction of the time; it never drops a handshake that is making progress.
void Acceptor::short_of_descriptors(int sys_errno) {
    int64_t none = 0;
    if (sys_errno == EMFILE || sys_errno == ENFILE)
        starving_since_ns.compare_exchange_strong(none, now_ns());
    if (!std::exchange(warned_, true))
        log::warn(fail_errno(sys_errno,
                             fmt::format("accept: new connections wait, and {} handshakes are open",
                                         pending_.size())));
    for (const bool has_spoken : {false, true})
        if (Pending* const oldest = oldest_stranger(has_spoken, starving_share)) {
            drop(*oldest, "out of file descriptors");
            break;
        }
    pause(pause_ns);
}

// Without a timer the acceptor could not resume.
void Acceptor::pause(int64_t for_ns) {
    if (!timer_) return;
    reactor_.modify(listener_.get(), 0);
    resume_ns_ = now_ns() + for_ns;
}

void Acceptor::resume() {
    if (resume_ns_ == 0) return;
    resume_ns_ = 0;
    reactor_.modify(listener_.get(), EPOLLIN);
}

// Makes room for one more stranger. A member is never silent for long, because it sends its first
// message together with its connection.
bool Acceptor::make_room() {
    const auto own = static_cast<std::size_t>(
        std::count_if(pending_.begin(), pending_.end(),
                      [](const auto& pending) { return pending->stranger.has_value(); }));
    if (own < std::min(least_strangers, options_.max_strangers) ||
        strangers < most_strangers(options_.max_strangers))
        return true;
    Pending* oldest = oldest_stranger(false, silent_share);
    if (!oldest) oldest = oldest_stranger(true, spoken_share);
    if (oldest) drop(*oldest, "too many handshakes are open");
    return oldest != nullptr;
}

void Acceptor::admit(UniqueFd fd) {
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // harmless on a Unix socket
    const int raw = fd.get();
    const int64_t now = now_ns(), timeout_ns = int64_t{options_.handshake_timeout_ms} * 1'000'000;
    pending_.emplace_back(new Pending{std::move(fd), AuthServer(key_, options_.any_job_context),
                                      now, now + timeout_ns});
    Pending& pending = *pending_.back();
    pending.self = std::prev(pending_.end());
    auto added = reactor_.add(raw, EPOLLIN, [this, &pending](uint32_t) { pending_ready(pending); });
    if (!added) return drop(pending, added.error().message);
    pending_ready(pending);
}

/// The oldest stranger that has, or has not, sent its first message, if that fraction of its time
/// is over.
Acceptor::Pending* Acceptor::oldest_stranger(bool has_spoken, int64_t timeout_share) const {
    const int64_t grace_ns = int64_t{options_.handshake_timeout_ms} * 1'000'000 / timeout_share;
    const int64_t before_ns = timer_ ? now_ns() - grace_ns : now_ns();
    const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const auto& pending) {
        return pending->stranger && pending->auth.has_proved() == has_spoken;
    });
    return found == pending_.end() || (*found)->since_ns > before_ns ? nullptr : found->get();
}

void Acceptor::pending_ready(Pending& pending) {
    // Bounded: each turn reads only the bytes that the handshake still needs, and it ends after the
    // hello.
    while (true) {
        const std::size_t wants = pending.wants();
        if (pending.in.size() < wants) {
            std::array<std::byte, max_hello_bytes> chunk;
            const std::size_t most = std::min(chunk.size(), wants - pending.in.size());
            const ssize_t got = recv(pending.fd.get(), chunk.data(), most, 0);
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0 && pending.stage == Pending::HandshakeStage::auth &&
                pending.auth.has_proved())
                return turn_away(pending, "it closed the connection after this rank's proof");
            if (got <= 0) return drop(pending, "the peer closed the connection");
            pending.in.insert(pending.in.end(), chunk.begin(), chunk.begin() + got);
            if (pending.in.size() < wants) continue;
        }
        if (pending.stage == Pending::HandshakeStage::hello) return hand_over(pending);
        if (!advance(pending)) return;
    }
}

bool Acceptor::advance(Pending& pending) {
    const Bytes in = std::exchange(pending.in, {});
    if (pending.stage == Pending::HandshakeStage::length) {
        ByteReader reader(in);
        pending.hello_bytes = reader.get<uint32_t>();
        pending.stage = Pending::HandshakeStage::hello;
        if (pending.hello_bytes <= max_hello_bytes) return true;
        drop(pending, "its hello is too long");
        return false;
    }
    Bytes reply;
    const bool proves = pending.auth.has_proved();
    const auto state = pending.auth.feed(in, reply);
    if (state == AuthServer::State::failed) {
        if (proves)
            turn_away(pending, "its proof is wrong");
        else
            drop(pending, pending.auth.error().message);
        return false;
    }
    // A new socket's buffer holds these few bytes; if not, the peer is malicious.
    const ssize_t sent = send(pending.fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(reply.size())) {
        drop(pending, "the peer does not read the answer");
        return false;
    }
    if (state == AuthServer::State::done) {
        pending.stage = Pending::HandshakeStage::length;
        pending.stranger.reset();
        resume();
    }
    return true;
}

void Acceptor::hand_over(Pending& pending) {
    reactor_.remove(pending.fd.get());
    UniqueFd fd = std::move(pending.fd);
    Bytes hello = std::move(pending.in);
    pending_.erase(pending.self);
    handler_(std::move(fd), std::move(hello));
}

void Acceptor::drop(Pending& pending, std::string_view why) {
    log::debug("accept: dropping a connection: {}", why);
    reactor_.remove(pending.fd.get());
    pending_.erase(pending.self);
}

// Another rank may be waiting for the rejected one, but only the rejected one sees an error, so
// this side logs a warning too.
void Acceptor::turn_away(Pending& pending, std::string_view why) {
    const uint64_t count = ++turned_away_;
    if (const int64_t now = now_ns(); now >= tell_again_ns_) {
        tell_again_ns_ = now + tell_ns;
        log::warn(fail(Code::auth,
                       "{}: turned away {}: {}; {} so far, probably with another TUTTI_SECRET or "
                       "TUTTI_JOB than this rank",
                       key_.context, origin_of(pending.fd.get()), why, count)
                      .advice("compare TUTTI_SECRET and TUTTI_JOB of all ranks"));
    }
    drop(pending, why);
}

void Acceptor::tick() {
    uint64_t expirations = 0;
    // Only empties the descriptor: the clock decides which time-outs are due.
    if (read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        log::debug("accept: timer: errno {}", errno);
    if (now_ns() >= resume_ns_) resume();
    drop_stale();
}

void Acceptor::drop_stale() {
    const int64_t now = now_ns();
    while (!pending_.empty() && pending_.front()->expires_ns <= now)
        drop(*pending_.front(), "it did not finish its handshake in time");

    int64_t next_ns = resume_ns_;
    if (!pending_.empty() && (next_ns == 0 || pending_.front()->expires_ns < next_ns))
        next_ns = pending_.front()->expires_ns;
    itimerspec when{};  // all zeros: off
    when.it_value.tv_sec = next_ns / 1'000'000'000;
    when.it_value.tv_nsec = next_ns % 1'000'000'000;
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

Result<> introduce(int fd, const AuthKey& key, ByteView hello, Deadline deadline) {
    if (hello.size() > max_hello_bytes)
        return fail(Code::invalid, "a hello of {} bytes is over the limit of {}", hello.size(),
                    max_hello_bytes)
            .advice("use shorter names (TUTTI_JOB, TUTTI_HOST_ID)");
    TUTTI_TRY(authenticate_client(fd, key, deadline));
    return send_frame(fd, hello, deadline);
}

bool Redial::again(const Error& error, Deadline deadline) {
    constexpr int most_calls = 10;
    constexpr int64_t pause_ms = 20;
    const bool hung_up = error.code == Code::peer_lost ||
                         (error.code == Code::auth && error.sys_errno == ECONNRESET);
    if (!hung_up || ++calls_ == most_calls) return false;
    const int64_t until_ns = now_ns() + pause_ms * calls_ * 1'000'000;
    for (int64_t left_ns = 1; left_ns > 0; left_ns = until_ns - now_ns()) {
        if (deadline.passed() || wait_cancelled()) return false;
        poll_serving(nullptr, static_cast<int>(deadline.left_ms(1 + left_ns / 1'000'000)));
    }
    return true;
}

}  // namespace tutti::net
