#include "control/control_tree.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/errno_class.h"
#include "os/uninherited_fd.h"

namespace tutti {

struct ControlTree::Link {
    Rank peer = nobody;
    LinkKind kind = LinkKind::branch;
    UninheritedFd fd;
    Bytes in;  // reactor's thread only
    std::mutex mutex;
    Bytes out;  // `mutex` guards this and the next two
    bool closed = false;
    bool clogged = false;  // the peer reads nothing: shut down, the reactor's thread will drop it
    bool retired = false, finished = false;  // guarded by the tree's mutex
};

namespace {

// True even if the peer's last messages have not been read yet: with manual progress the program
// may have computed for a long time.
bool has_closed(int fd) {
    pollfd end{fd, POLLRDHUP, 0};
    return ::poll(&end, 1, 0) > 0;
}

}  // namespace

std::optional<ControlTree::Hello> ControlTree::Hello::decode(ByteView bytes) {
    ByteReader in(bytes);
    Hello hello{.version = in.get<uint32_t>(), .rank = in.get<Rank>()};
    if (in.ok() && hello.version != current_version) return hello;
    hello.kind = in.get_enum(LinkKind::branch, LinkKind::detour);
    if (!in.at_end()) return std::nullopt;
    return hello;
}

ControlTree::ControlTree(Reactor& reactor, Handlers handlers, const PeerLimits& limits)
    : reactor_(reactor), handlers_(std::move(handlers)), limits_(limits) {}

ControlTree::~ControlTree() {
    close();
}

Result<> ControlTree::attach(Rank peer, UniqueFd fd, LinkKind kind) {
    auto link = std::make_shared<Link>();
    link->peer = peer;
    link->kind = kind;
    link->fd = UninheritedFd(std::move(fd));
    {
        const std::lock_guard lock(mutex_);
        if (kind == LinkKind::branch && links_.count(peer) > 0)
            return fail_rank(Code::invalid, peer, "rank {} already has a control connection", peer)
                .advice("give each process its own TUTTI_RANK");
        if (links_.count(peer) >= limits_.control_connections)
            return fail_rank(Code::invalid, peer,
                             "rank {} already has {} control connections, the limit", peer,
                             links_.count(peer))
                .advice("give each process its own TUTTI_RANK");
        links_.emplace(peer, link);
    }
    auto added = reactor_.add(link->fd.get(), EPOLLIN | EPOLLRDHUP,
                              [this, link](uint32_t events) { ready(link, events); });
    // Without the reactor, no thread would read from this link.
    if (!added) detach(link);
    return added;
}

ControlTree::LinkPtr ControlTree::find(Rank peer) {
    const std::lock_guard lock(mutex_);
    const auto found = links_.lower_bound(peer);
    const bool usable = found != links_.end() && found->first == peer && !found->second->retired;
    return usable ? found->second : nullptr;
}

bool ControlTree::connected(Rank peer) {
    const std::lock_guard lock(mutex_);
    return links_.count(peer) > 0;
}

void ControlTree::mark(Rank peer, bool Link::*what) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = links_.equal_range(peer);
    for (auto at = first; at != last; ++at) (*at->second).*what = true;
}

void ControlTree::retire(Rank peer) {
    mark(peer, &Link::retired);
}

void ControlTree::finish(Rank peer) {
    mark(peer, &Link::finished);
}

bool ControlTree::finished() {
    const std::lock_guard lock(mutex_);
    return std::all_of(links_.begin(), links_.end(),
                       [](auto& entry) { return entry.second->finished; });
}

void ControlTree::ready(const LinkPtr& link, uint32_t events) {
    if (events & EPOLLOUT) {
        const std::lock_guard lock(link->mutex);
        write(*link);
    }
    if (events & ~static_cast<uint32_t>(EPOLLOUT)) read(link);
}

void ControlTree::read(const LinkPtr& link) {
    std::array<std::byte, 4 * 1024> buffer;
    for (;;) {
        const ssize_t got = ::recv(link->fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        // A shortage in this process does not mean that the peer has ended: the reactor calls
        // again.
        const ErrnoClass errno_class = got < 0 ? classify_errno(errno) : ErrnoClass::peer;
        if (got < 0 && (errno_class == ErrnoClass::again || errno_class == ErrnoClass::shortage))
            break;
        if (got <= 0) return drop(link, cause_of_end(*link, got));
        link->in.insert(link->in.end(), buffer.begin(), buffer.begin() + got);

        std::size_t at = 0;
        while (link->in.size() - at >= sizeof(uint32_t)) {
            uint32_t bytes = 0;
            std::memcpy(&bytes, link->in.data() + at, sizeof bytes);
            if (bytes > max_message_bytes) return drop(link, "it sent a malformed control message");
            if (link->in.size() - at - sizeof bytes < bytes) break;
            handlers_.message(link->peer, ByteView(link->in).subspan(at + sizeof bytes, bytes));
            at += sizeof bytes + bytes;
        }
        link->in.erase(link->in.begin(), link->in.begin() + static_cast<ptrdiff_t>(at));
    }
}

std::string ControlTree::cause_of_end(Link& link, ssize_t got) {
    const std::lock_guard lock(link.mutex);
    if (link.clogged)
        return fmt::format("it did not read {} bytes of control messages",
                           limits_.unsent_control_bytes);
    return got == 0 ? "it closed its connection" : strerror(errno);
}

// With the link's mutex held.
void ControlTree::write(Link& link) {
    while (!link.out.empty() && !link.closed) {
        const ssize_t sent =
            ::send(link.fd.get(), link.out.data(), link.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) break;  // full; if broken, read() finds out
        link.out.erase(link.out.begin(), link.out.begin() + sent);
    }
    if (link.closed) return;
    const uint32_t output = link.out.empty() ? 0u : uint32_t{EPOLLOUT};
    reactor_.modify(link.fd.get(), EPOLLIN | EPOLLRDHUP | output);
}

bool ControlTree::send(Rank to, ByteView message) {
    const LinkPtr link = find(to);
    return link && put(*link, message);
}

bool ControlTree::put(Link& link, ByteView message) {
    const auto bytes = static_cast<uint32_t>(message.size());
    const auto* head = reinterpret_cast<const std::byte*>(&bytes);
    const std::lock_guard lock(link.mutex);
    if (link.closed || link.clogged || has_closed(link.fd.get())) return false;
    if (link.out.size() + sizeof bytes + message.size() > limits_.unsent_control_bytes) {
        // Callers hold locks, so the reactor's thread reports the loss.
        link.clogged = true;
        ::shutdown(link.fd.get(), SHUT_RDWR);
        return false;
    }
    link.out.insert(link.out.end(), head, head + sizeof bytes);
    link.out.insert(link.out.end(), message.begin(), message.end());
    write(link);
    return true;
}

void ControlTree::flood(ByteView message, Rank except) {
    put_to_all(message, [&](const Link& link) { return link.peer != except && !link.retired; });
}

void ControlTree::flood_last(ByteView message) {
    put_to_all(message, [](const Link&) { return true; });
}

void ControlTree::put_to_all(ByteView message, const std::function<bool(const Link&)>& chosen) {
    std::vector<LinkPtr> links;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [peer, link] : links_)
            if (chosen(*link)) links.push_back(link);
    }
    for (const LinkPtr& link : links) put(*link, message);
}

bool ControlTree::flushed() {
    const std::lock_guard lock(mutex_);
    for (auto& [peer, link] : links_) {
        const std::lock_guard output(link->mutex);
        if (!link->out.empty() && !link->closed && !link->finished) return false;
    }
    return true;
}

void ControlTree::detach(const LinkPtr& link) {
    {
        const std::lock_guard lock(mutex_);
        const auto [first, last] = links_.equal_range(link->peer);
        const auto found =
            std::find_if(first, last, [&](auto& entry) { return entry.second == link; });
        if (found != last) links_.erase(found);
    }
    const std::lock_guard lock(link->mutex);
    link->closed = true;
    reactor_.remove(link->fd.get());
    link->fd.reset();
}

void ControlTree::drop(const LinkPtr& link, const std::string& cause) {
    detach(link);
    handlers_.closed(link->peer, link->kind, cause);
}

void ControlTree::close() {
    std::multimap<Rank, LinkPtr> links;
    {
        const std::lock_guard lock(mutex_);
        links.swap(links_);
    }
    for (auto& [peer, link] : links) {
        const std::lock_guard lock(link->mutex);
        link->closed = true;
        reactor_.remove(link->fd.get());
        link->fd.reset();
    }
}

}  // namespace tutti
