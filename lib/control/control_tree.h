// The control tree's connections, and detours around ranks that are gone. They carry short
// messages, never data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/fd.h"
#include "control/control_links.h"
#include "transport/peer_limits.h"
#include "wait/reactor.h"

namespace tutti {

/// Messages are framed by a 32-bit length, at most max_message_bytes. Any thread may call send and
/// flood; they never block, but queue output that the kernel does not take. Handlers run on the
/// reactor's thread.
class ControlTree : public ControlLinks {
public:
    static constexpr std::size_t max_message_bytes = 64 * 1024;
    struct Handlers {
        std::function<void(Rank from, ByteView message)> message;
        std::function<void(Rank peer, LinkKind kind, const std::string& cause)> closed;
    };

    /// A connection's first message. Version and rank have these places in every version.
    struct Hello {
        static constexpr uint32_t current_version = 1;
        uint32_t version = current_version;
        Rank rank = nobody;
        LinkKind kind = LinkKind::branch;
        Bytes encode() const { return ByteWriter().put(version).put(rank).put(kind).take(); }
        /// A hello of another version has only version and rank set. nullopt: it is malformed.
        static std::optional<Hello> decode(ByteView bytes);
    };

    ControlTree(Reactor& reactor, Handlers handlers, const PeerLimits& limits = {});
    ~ControlTree() override;
    ControlTree(const ControlTree&) = delete;

    /// Takes over an authenticated connection. `invalid`: the peer has a branch already, or too
    /// many connections.
    Result<> attach(Rank peer, UniqueFd fd, LinkKind kind);
    bool send(Rank to, ByteView message) override;
    void flood(ByteView message, Rank except) override;
    /// The same, and to retired peers, too.
    void flood_last(ByteView message);
    bool connected(Rank peer) override;
    void retire(Rank peer) override;
    void finish(Rank peer) override;
    /// True if every peer is finished.
    bool finished();
    /// True when the kernel has taken all queued output, except output for finished peers.
    bool flushed();
    /// Closes all connections; no handler runs for them any more.
    void close();

private:
    struct Link;
    using LinkPtr = std::shared_ptr<Link>;
    void ready(const LinkPtr& link, uint32_t events);
    void read(const LinkPtr& link);
    std::string cause_of_end(Link& link, ssize_t got);
    void write(Link& link);
    void detach(const LinkPtr& link);
    void drop(const LinkPtr& link, const std::string& cause);
    LinkPtr find(Rank peer);
    bool put(Link& link, ByteView message);
    void put_to_all(ByteView message, const std::function<bool(const Link&)>& chosen);
    void mark(Rank peer, bool Link::*what);

    Reactor& reactor_;
    Handlers handlers_;
    const PeerLimits limits_;
    std::mutex mutex_;                    // guards links_; each link's output has its own
    std::multimap<Rank, LinkPtr> links_;  // if a peer has several, the first is written to
};

}  // namespace tutti
