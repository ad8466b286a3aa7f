// A discrete-event simulation of all ranks' steps over a network: the time, the bytes, and the load
// of links. Pure and deterministic; it has no values, only their sizes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "proof/network.h"
#include "schedule/schedule.h"

namespace tutti::sim {

/// A call's data in tiles. The caller computes them as the engine does (engine/layout.h), on which
/// this folder must not depend.
struct Data {
    uint32_t tiles = 1;
    /// Elements of a step's value in a tile. All tiles but the last are alike.
    std::function<uint64_t(const Schedule&, const Step&, uint32_t tile)> elements;
    std::array<uint32_t, 3> element_bytes{1, 1, 1};  // by Form
    bool in_pieces = false;  // runs of chunks are not contiguous in the caller's memory
};

struct SimulationRequest {
    Rank ranks = 1;
    Network network;
    Data data;
    std::function<Schedule(Rank)> schedule;
    bool record = false;  // keep every message and every step, to draw them
};

/// A message, from the end of its sender's step to its last byte at the receiver.
struct Flight {
    Rank from = nobody, to = nobody;
    uint32_t lane = 0;
    uint32_t tile = 0;
    uint64_t bytes = 0;
    Picoseconds sent = 0, arrived = 0;
};

/// A rank's processor at a step.
struct Work {
    Rank rank = nobody;
    uint32_t lane = 0;
    Picoseconds from = 0, to = 0;
};

struct RankTotals {
    uint64_t messages_sent = 0, bytes_sent = 0;
    uint64_t messages_received = 0, bytes_received = 0;
    Picoseconds busy = 0;      // of its processor
    Picoseconds finished = 0;  // the end of its last step
};

struct Report {
    Picoseconds time = 0;  // until the last rank's last step
    std::vector<RankTotals> ranks;
    std::vector<NetworkLink> links;
    std::vector<Flight> flights;  // in the order of arrival; only if recorded
    std::vector<Work> work;       // in the order of their ends; only if recorded

    /// The link that was busy the longest.
    const NetworkLink& busiest_link() const;
    double utilisation(const NetworkLink& link) const;  // 0 … 1, of the whole time
};

/// Runs the steps as the engine does: a lane never skips, and a step waits for its message, a
/// credit and its `after`. A rank has one processor, which stays with a lane while that lane can
/// continue.
///
/// A step takes the processor overhead for its message in and its message out, and the time to
/// reduce or copy its value, unless the value is in place already. Then its message passes the
/// links of its path, cut through, behind earlier messages. A credit returns one latency after the
/// message was used.
///
/// invalid: an error in the network, or lanes that wait for each other; the error says which lane
/// waits for which. Data and schedules are assumed to be correct (verify).
Result<Report> simulate(const SimulationRequest& request);

}  // namespace tutti::sim
