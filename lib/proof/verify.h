// Proof by symbolic execution that the schedules of all ranks together do what the collective says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace tutti {

struct VerifyRequest {
    Collective collective = Collective::allreduce;
    Rank ranks = 1;
    Rank root = 0;
    uint32_t tiles = 0;     // 0: enough to reuse every credit and slot (credits + 2)
    bool in_place = false;  // input chunk c and output chunk c share memory; always for a broadcast
    uint32_t max_credits = 8;  // gives up (deadlock) if these do not suffice
    const Hosts* hosts = nullptr;
};

struct Verdict {
    bool ok = false;
    std::string problem;          // "rank 3 lane 0 step 2 (tile 1): …": the place and the error
    uint32_t credits = 0;         // the fewest per channel that cannot deadlock
    uint64_t messages = 0;        // sent by all ranks, per tile
    uint64_t busiest_chunks = 0;  // most chunks sent by one rank, per tile
    uint32_t hops = 0;            // longest chain of messages, for one tile: the latency term
    bool ordered = false;         // reductions: contributions are combined in rank order in every
                                  // result
};

/// Runs every rank's steps symbolically, tile by tile, over FIFO channels with credits. One
/// simulated run settles the outcome, because lanes never choose between messages (a Kahn network).
/// Checks: each output chunk ends up `final` (or raw if nothing is reduced) and holds every rank's
/// contribution exactly once (broadcast: the root's; barrier: every rank's at least once); forms
/// match between sender and receiver and along local values; message sizes agree; no step reads
/// memory that was not written, and no lane overwrites memory that another lane still needs; all
/// ranks hold bitwise the same result (operand order included).
///
/// Nothing is sampled or assumed to be symmetric: every step of every rank is executed, for as many
/// tiles as it takes to reuse each credit and slot. A value is the number of its contents
/// (values.h), so that equal words mean equal contributions, order and roundings, except for a
/// collision of random 128-bit sums. Memory: the schedules (some 70 bytes per step); 16 bytes for
/// each place of a buffer in every tile in progress; 8 per channel, 48 per message in flight and
/// about as much for each different partial result.
Verdict verify(const VerifyRequest& asked,
               const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes);

}  // namespace tutti
