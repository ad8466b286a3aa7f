#include "proof/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::sim {
namespace {

constexpr double ps_per_s = 1e12;
constexpr double most_us = 1e9;

bool in_range(const Medium& m) {
    return m.bytes_per_s >= 1 && m.latency_us >= 0 && m.latency_us <= most_us &&
           m.overhead_us >= 0 && m.overhead_us <= most_us;
}

// Member i of `members` in blocks over `groups`, as even as can be.
int block_of(int i, int members, int groups) {
    return static_cast<int>(static_cast<int64_t>(i) * groups / members);
}

}  // namespace

Picoseconds picoseconds(double us) {
    return std::llround(us * 1e6);
}

double microseconds(Picoseconds ps) {
    return static_cast<double>(ps) / 1e6;
}

std::string NetworkLink::name() const {
    switch (kind) {
        case NetworkLinkKind::memory:
            return fmt::format("host {} memory", index);
        case NetworkLinkKind::out:
            return fmt::format("host {} out", index);
        case NetworkLinkKind::in:
            return fmt::format("host {} in", index);
        case NetworkLinkKind::up:
            return fmt::format("switch {} up", index);
        case NetworkLinkKind::down:
            return fmt::format("switch {} down", index);
    }
    return {};
}

Result<> Network::check(Rank ranks) const {
    if (ranks < 1)
        return fail(Code::invalid, "the network has {} ranks", ranks).advice("give 1 rank or more");
    if (hosts < 1 || hosts > ranks)
        return fail(Code::invalid, "{} hosts is out of range for {} ranks", hosts, ranks)
            .advice("give 1 to {} hosts", ranks);
    if (switches < 1 || switches > hosts)
        return fail(Code::invalid, "{} switches is out of range for {} hosts", switches, hosts)
            .advice("give 1 to {} switches", hosts);
    if (!in_range(wire) || !in_range(memory) || !(reduce_bytes_per_s >= 1))
        return fail(Code::invalid, "a bandwidth, latency or overhead is out of range")
            .advice(
                "give bandwidths of at least 1 byte/s, and latencies and overheads of 0 to 1000 s");
    if (!(oversubscription >= 1 && oversubscription <= 1e6))
        return fail(Code::invalid, "oversubscription {} is out of range", oversubscription)
            .advice("give 1 to 1000000");
    if (credits < 1)
        return fail(Code::invalid,
                    "{} credits are too few: a channel without credits moves nothing", credits)
            .advice("give 1 credit or more");
    return {};
}

Fabric::Fabric(const Network& n, Rank ranks)
    : hosts_(n.hosts),
      wire_latency_(picoseconds(n.wire.latency_us)),
      wire_overhead_(picoseconds(n.wire.overhead_us)),
      memory_latency_(picoseconds(n.memory.latency_us)),
      memory_overhead_(picoseconds(n.memory.overhead_us)) {
    for (Rank r = 0; r < ranks; ++r) host_.push_back(block_of(r, ranks, n.hosts));
    for (int h = 0; h < n.hosts; ++h) switch_.push_back(block_of(h, n.hosts, n.switches));
    const double wire = ps_per_s / n.wire.bytes_per_s, memory = ps_per_s / n.memory.bytes_per_s;
    for (int h = 0; h < n.hosts; ++h)
        for (const auto& [kind, cost] : {std::pair{NetworkLinkKind::memory, memory},
                                         {NetworkLinkKind::out, wire},
                                         {NetworkLinkKind::in, wire}})
            links_.push_back({.kind = kind, .index = h, .ps_per_byte = cost});
    for (int s = 0; s < n.switches; ++s) {
        const auto members = std::count(switch_.begin(), switch_.end(), s);
        const double cost = wire * n.oversubscription / static_cast<double>(members);
        for (const NetworkLinkKind kind : {NetworkLinkKind::up, NetworkLinkKind::down})
            links_.push_back({.kind = kind, .index = s, .ps_per_byte = cost});
    }
}

NetworkPath Fabric::path(Rank from, Rank to) const {
    const int a = host_of(from), b = host_of(to);
    NetworkPath p;
    const auto add = [&](uint32_t link) { p.links[p.count++] = link; };
    if (a == b) {
        add(of_host(a, NetworkLinkKind::memory));
        p.latency = memory_latency_;
        p.overhead = memory_overhead_;
        return p;
    }
    const int leaving = switch_[static_cast<std::size_t>(a)];
    const int entering = switch_[static_cast<std::size_t>(b)];
    add(of_host(a, NetworkLinkKind::out));
    if (leaving != entering) {
        add(of_switch(leaving, NetworkLinkKind::up));
        add(of_switch(entering, NetworkLinkKind::down));
    }
    add(of_host(b, NetworkLinkKind::in));
    p.latency = wire_latency_;
    p.overhead = wire_overhead_;
    return p;
}

Fabric::Passage Fabric::pass(uint32_t index, uint64_t bytes, Passage arrival) {
    NetworkLink& link = links_[index];
    const Picoseconds work = std::llround(static_cast<double>(bytes) * link.ps_per_byte);
    const Picoseconds start = std::max(arrival.head, link.free_at);
    link.free_at = start + work;
    link.busy += work;
    link.bytes += bytes;
    ++link.messages;
    return {start, std::max(start + work, arrival.tail)};
}

}  // namespace tutti::sim
