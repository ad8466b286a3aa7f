// The control tree's connections, and detours where a rank of it is gone: short messages, never
// data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/fd.h"
#include "transport/peer_limits.h"
#include "wait/reactor.h"

namespace tutti {

/// Messages are framed by a 32-bit length, at most max_message_bytes. send and flood from any
/// thread; they never block (what the kernel does not take is queued). Handlers run on the
/// reactor's thread.
class ControlTree {
public:
    static constexpr std::size_t max_message_bytes = 64 * 1024;
    /// A branch's end is the end of its peer, which has one. Two ranks may have made a detour to
    /// each other at once; whether its end is its peer's, a call tells.
    enum class LinkKind : uint8_t { branch, detour };
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
        /// A hello of another version has only version and rank set. Nothing: it is malformed.
        static std::optional<Hello> decode(ByteView bytes);
    };

    ControlTree(Reactor& reactor, Handlers handlers, const PeerLimits& limits = {});
    ~ControlTree();
    ControlTree(const ControlTree&) = delete;

    /// Takes over an authenticated connection. invalid: it would be that peer's second branch, or
    /// it has too many.
    Result<> attach(Rank peer, UniqueFd fd, LinkKind kind);
    /// false: no connection to that peer takes messages any more, or none ever did.
    bool send(Rank to, ByteView message);
    void flood(ByteView message, Rank except);
    /// Also to peers that take no other messages any more.
    void flood_last(ByteView message);
    /// That peer takes no messages any more; what it has sent still comes.
    void retire(Rank peer);
    /// Nothing comes from that peer any more.
    void finish(Rank peer);
    /// Whether that is so of all of them.
    bool finished();
    /// True when everything queued has been handed to the kernel, but for who is finished.
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
    std::multimap<Rank, LinkPtr> links_;  // of several to one peer, the first is written to
};

}  // namespace tutti
