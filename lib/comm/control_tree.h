// The control tree's connections: short messages to the parent and the children, never data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/bytes.h"
#include "base/fd.h"
#include "net/reactor.h"

namespace tutti {

/// Messages are framed by a 32-bit length, at most max_message_bytes. send and flood from any
/// thread; they never block (what the kernel does not take is queued). Handlers run on the
/// reactor's thread.
class ControlTree {
public:
    static constexpr std::size_t max_message_bytes = 64 * 1024;
    struct Handlers {
        std::function<void(Rank from, ByteView message)> message;
        std::function<void(Rank peer, const std::string& cause)> closed;
    };

    ControlTree(Reactor& reactor, Handlers handlers);
    ~ControlTree();
    ControlTree(const ControlTree&) = delete;

    /// Takes over an authenticated connection. false: that peer is connected already.
    bool attach(Rank peer, UniqueFd fd);
    void send(Rank to, ByteView message);
    void flood(ByteView message, Rank except);
    /// True when everything queued has been handed to the kernel.
    bool flushed();
    /// Closes all connections; no handler runs for them any more.
    void close();

private:
    struct Link;
    using LinkPtr = std::shared_ptr<Link>;
    void ready(const LinkPtr& link, uint32_t events);
    void read(const LinkPtr& link);
    void write(Link& link);
    void drop(const LinkPtr& link, const std::string& cause);
    LinkPtr find(Rank peer);

    Reactor& reactor_;
    Handlers handlers_;
    std::mutex mutex_;  // guards links_; each link's output has its own
    std::map<Rank, LinkPtr> links_;
};

}  // namespace tutti
