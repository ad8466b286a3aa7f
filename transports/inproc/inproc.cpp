// Ranks as threads of one process: channels as between processes, but open() passes the receiving
// half directly to the peer.
//
// Threads. open() calls the peer's sink from the opener's thread. So a sink must be safe to call
// from any thread and must not call back into its transport. A caller of open() or close() must not
// hold a lock that a sink takes. close() returns when no such call is in progress.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <set>

#include "net/auth.h"
#include "transport/mapped/channel_pool.h"
#include "transports/catalog.h"

namespace tutti {
namespace {

/// A live transport, as other transports of the process see it.
struct Node {
    Rank rank = nobody;
    std::shared_ptr<const Doorbell> doorbell;
    std::shared_ptr<PeerLife> life = std::make_shared<PeerLife>();
    std::mutex mutex;                                   // held during calls of the sink
    ChannelSink* sink = nullptr;                        // nullptr: closed
    std::set<std::shared_ptr<const Doorbell>> friends;  // rung when this transport closes
};

struct LiveNodes {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Node>> nodes;  // by address
    uint64_t serial = 0;
};

LiveNodes& live_nodes() {
    static auto* all = new LiveNodes;  // never destroyed: a program may close transports while it
                                       // exits
    return *all;
}

// Differs in every process, including a forked child.
Result<std::string> process_prefix() {
    static const auto token = net::random_hex(16);
    if (!token) return tl::unexpected(token.error());
    return fmt::format("{}-{}-", ::getpid(), *token);
}

class InprocTransport final : public Transport {
public:
    explicit InprocTransport(const TransportContext& context) : context_(context) {}
    ~InprocTransport() override { InprocTransport::close({}); }

    std::string_view name() const override { return "inproc"; }
    const Capabilities& capabilities() const override { return capabilities_; }
    Result<> listen() override;
    std::string address() const override { return address_; }
    bool may_reach(const PeerAddress& peer) const override;
    Result<std::unique_ptr<Sender>> open(const ChannelId& id, const PeerAddress& peer,
                                         Deadline deadline) override;
    void progress() override {}
    void close(Deadline deadline) override;

private:
    TransportContext context_;
    Capabilities capabilities_ = mapped_capabilities(0.05);
    std::shared_ptr<ChannelPool> channels_ =
        std::make_shared<ChannelPool>(std::make_shared<Arena>());
    std::string address_;
    std::shared_ptr<Node> node_;
};

Result<> InprocTransport::listen() {
    TUTTI_ASSIGN(const std::string prefix, process_prefix());
    // A copy of the descriptor: peers may still ring it after this rank's endpoint is gone.
    UniqueFd doorbell(::fcntl(context_.doorbell_fd, F_DUPFD_CLOEXEC, 0));
    if (!doorbell) return fail_errno(errno, "inproc: cannot duplicate a file descriptor");
    auto node = std::make_shared<Node>();
    node->rank = context_.rank;
    node->doorbell = std::make_shared<const Doorbell>(std::move(doorbell));
    node->sink = context_.sink;

    LiveNodes& all = live_nodes();
    const std::lock_guard lock(all.mutex);
    address_ = prefix + std::to_string(++all.serial);
    all.nodes[address_] = node;
    node_ = std::move(node);
    return {};
}

bool InprocTransport::may_reach(const PeerAddress& peer) const {
    // If ranks act as several hosts, their host ids differ, and this transport connects only ranks
    // of one host.
    const auto prefix = process_prefix();
    return prefix && peer.host_id == context_.host_id && peer.address.starts_with(*prefix);
}

Result<std::unique_ptr<Sender>> InprocTransport::open(const ChannelId& id, const PeerAddress& peer,
                                                      Deadline) {
    if (!may_reach(peer) || !node_)
        return fail_rank(Code::unsupported, peer.rank, "inproc: rank {} is in another process",
                         peer.rank)
            .advice("add shm or tcp to TUTTI_TRANSPORT");
    std::shared_ptr<Node> other;
    {
        const std::lock_guard lock(live_nodes().mutex);
        const auto found = live_nodes().nodes.find(peer.address);
        if (found != live_nodes().nodes.end()) other = found->second;
    }
    if (!other || other->rank != peer.rank)
        return fail_rank(Code::peer_lost, peer.rank, "inproc: rank {} has left the job", peer.rank);
    TUTTI_ASSIGN(auto space, channels_->open());
    std::byte* const memory = space->block.data;
    auto sender = std::make_unique<MappedSender>(channels_, std::move(space),
                                                 MappedPeer{other->doorbell, other->life});
    {
        const std::lock_guard lock(node_->mutex);
        node_->friends.insert(other->doorbell);
    }
    const std::lock_guard lock(other->mutex);
    if (other->sink == nullptr)
        return fail_rank(Code::peer_lost, peer.rank, "inproc: rank {} has left the job", peer.rank);
    other->friends.insert(node_->doorbell);
    other->sink->opened({.peer = context_.rank, .comm = id.comm, .lane = id.lane},
                        std::make_unique<MappedReceiver>(memory, channels_->arena()->segments(),
                                                         MappedPeer{node_->doorbell, node_->life}));
    return sender;
}

void InprocTransport::close(Deadline) {
    if (!node_) return;
    {
        const std::lock_guard lock(live_nodes().mutex);
        live_nodes().nodes.erase(address_);
    }
    const std::lock_guard lock(node_->mutex);
    node_->sink = nullptr;
    node_->life->gone.store(true, std::memory_order_release);
    // An orderly end is not reported to the sinks, but a peer that sleeps until this rank sends
    // must wake up and check.
    for (const auto& doorbell : node_->friends) doorbell->ring();
    node_->friends.clear();
}

}  // namespace

std::unique_ptr<Transport> make_inproc_transport(const TransportContext& context) {
    return std::make_unique<InprocTransport>(context);
}

}  // namespace tutti
