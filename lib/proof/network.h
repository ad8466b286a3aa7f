// The network of a simulation: hosts on switches, and links that carry one message at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tutti::sim {

// Whole numbers, so that a simulation has the same result everywhere. 2^63 ps are 106 days.
using Picoseconds = int64_t;

/// The cost of a message on one kind of channel (LogGP's G, L and o).
struct Medium {
    double bytes_per_s = 0;
    double latency_us = 0;   // from the last byte sent to the last byte there, in an idle network
    double overhead_us = 0;  // of a rank's processor, for each message sent and each received
};

/// Blocks of ranks are on hosts, blocks of hosts on switches. Each host has a link to its switch,
/// each switch a link to a core that never blocks.
struct Network {
    int hosts = 1;
    int switches = 1;
    Medium wire{1.25e9, 10, 1};        // a host's link to its switch, each way
    Medium memory{20e9, 0.2, 0.1};     // within a host, for all its ranks together
    double oversubscription = 1;       // the rate of a switch's hosts together ÷ the rate of its
                                       // link up
    double reduce_bytes_per_s = 10e9;  // of results that a rank reduces or copies
    uint32_t credits = 8;              // messages in flight per channel

    /// invalid: a number is out of range, or there are more hosts than ranks, switches than hosts.
    Result<> check(Rank ranks) const;
};

enum class NetworkLinkKind : uint8_t { memory, out, in, up, down };

struct NetworkLink {
    NetworkLinkKind kind = NetworkLinkKind::memory;
    int index = 0;  // the host's or the switch's
    double ps_per_byte = 0;
    uint64_t messages = 0;
    uint64_t bytes = 0;
    Picoseconds busy = 0;
    Picoseconds free_at = 0;

    std::string name() const;  // "host 3 out", "switch 0 up", "host 1 memory"
};

/// The links between two ranks, in order, and the other costs of a message between them.
struct NetworkPath {
    std::array<uint32_t, 4> links{};
    uint32_t count = 0;
    Picoseconds latency = 0;
    Picoseconds overhead = 0;
};

class Fabric {
public:
    Fabric(const Network& network, Rank ranks);

    NetworkPath path(Rank from, Rank to) const;
    int host_of(Rank rank) const { return host_[static_cast<std::size_t>(rank)]; }

    /// The times at which a message's first and last byte leave a link.
    struct Passage {
        Picoseconds head = 0, tail = 0;
    };
    /// First come, first served, without gaps. arrival: the times of the message's first and last
    /// byte. Calls must be in the order of the first bytes. A message that arrives slowly from a
    /// slower link takes only the time that its bytes need, so that other messages pass in between.
    Passage pass(uint32_t link, uint64_t bytes, Passage arrival);

    const std::vector<NetworkLink>& links() const { return links_; }

private:
    uint32_t of_host(int host, NetworkLinkKind kind) const {
        return static_cast<uint32_t>(3 * host) + static_cast<uint32_t>(kind);
    }
    uint32_t of_switch(int index, NetworkLinkKind kind) const {
        return static_cast<uint32_t>(3 * hosts_ + 2 * index) + static_cast<uint32_t>(kind) -
               static_cast<uint32_t>(NetworkLinkKind::up);
    }

    int hosts_;
    Picoseconds wire_latency_, wire_overhead_, memory_latency_, memory_overhead_;
    std::vector<int> host_;           // by rank
    std::vector<int> switch_;         // by host
    std::vector<NetworkLink> links_;  // three a host, then two a switch
};

Picoseconds picoseconds(double us);
double microseconds(Picoseconds ps);

}  // namespace tutti::sim
