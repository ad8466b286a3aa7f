// The simulated network: control connections and the channels of collectives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "control/control_links.h"
#include "simulation/scenario.h"

namespace simulation {

class World;

/// The messages in one direction of a connection. They arrive in order. If the sender dies, the
/// network may lose the last ones, as a kernel or a library does with output that it still had.
struct Direction {
    int64_t last_arrival = 0;
    uint64_t sent = 0, arrived = 0;
    uint64_t limit = std::numeric_limits<uint64_t>::max();  // messages from this one on are lost
};

/// A control connection.
struct Link {
    struct End {
        Rank rank = nobody;
        bool attached = false;  // the rank has taken the connection over, and closed it later
        bool closed = false;
        bool ended = false;  // the kernel knows of the other end's end
        bool retired = false, finished = false;
        Direction out;
    };
    ControlLinks::LinkKind kind{};
    std::array<End, 2> ends;
};

enum class Dialled : uint8_t { connected, refused, timed_out };

/// A rank that waits for another rank to accept a connection.
struct Attempt {
    Rank from = nobody, to = nobody;
    ControlLinks::LinkKind kind{};
    bool over = false;
    std::function<void(Dialled)> done;
};

class Network {
public:
    explicit Network(World& world) : world_(world) {}

    /// When a message that leaves now arrives, behind the direction's earlier messages.
    int64_t arrival(Rank from, Rank to, Direction& direction);
    /// Asks a rank for a connection. done is called once, on the service thread of `from`.
    std::shared_ptr<Attempt> dial(Rank from, Rank to, ControlLinks::LinkKind kind,
                                  int64_t patience_ns, std::function<void(Dialled)> done);
    void abandon(const std::shared_ptr<Attempt>& attempt);
    /// A link's end closes, in order or because its rank has died; the other end hears of it later.
    void close(const std::shared_ptr<Link>& link, int side, int64_t delay_ns);

    /// Draws which of the messages that are on their way still arrive.
    void lose_some(Direction& direction);
    /// The ranks with which this rank shares a channel of collectives.
    std::set<Rank>& data_peers(Rank rank) { return data_peers_[rank]; }
    std::size_t open_links() const { return open_links_; }

    /// All channels' directions of a rank, to lose messages of a rank that dies.
    void note_channel(Rank from, Rank to, const std::shared_ptr<Direction>& direction);
    void lose_channels_of(Rank rank);

private:
    void refuse(const std::shared_ptr<Attempt>& attempt);
    void accept(const std::shared_ptr<Attempt>& attempt);

    World& world_;
    std::size_t open_links_ = 0;
    std::map<Rank, std::set<Rank>> data_peers_;
    std::map<Rank, std::vector<std::shared_ptr<Direction>>> channels_;
};

/// One rank's control connections.
class SimLinks final : public ControlLinks {
public:
    SimLinks(World& world, Rank rank) : world_(world), rank_(rank) {}

    bool send(Rank to, ByteView message) override;
    void flood(ByteView message, Rank except) override;
    bool connected(Rank peer) override { return links_.count(peer) > 0; }
    void retire(Rank peer) override;
    void finish(Rank peer) override;
    void flood_last(ByteView message);
    /// True if every peer is finished.
    bool finished() const;

    /// False: the peer has a branch already, or too many connections.
    bool attach(const std::shared_ptr<Link>& link, int side);
    /// The peer's end has been read: forgets the link.
    void detach(const std::shared_ptr<Link>& link);
    /// Closes all connections.
    void close_all(int64_t delay_ns, bool dead);
    std::size_t count() const { return links_.size(); }

private:
    using Held = std::pair<std::shared_ptr<Link>, int>;  // with this rank's side
    bool put(const Held& held, ByteView message);
    void receive(const std::shared_ptr<Link>& link, int side, const Bytes& message);

    World& world_;
    const Rank rank_;
    std::multimap<Rank, Held> links_;
};

}  // namespace simulation
