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
    uint32_t tiles = 0;     // 0: enough to see every reuse of credits and slots (credits + 2)
    bool in_place = false;  // input chunk c and output chunk c are one memory; a broadcast always
    uint32_t max_credits = 8;  // give up (deadlock) if no fewer suffice
    const Hosts* hosts = nullptr;
};

struct Verdict {
    bool ok = false;
    std::string problem;          // "rank 3 lane 0 step 2 (tile 1): …": what is wrong and where
    uint32_t credits = 0;         // the fewest per channel with which it cannot deadlock
    uint64_t messages = 0;        // sent by all ranks, per tile
    uint64_t busiest_chunks = 0;  // most chunks sent by one rank, per tile
    uint32_t hops = 0;            // longest chain of messages, for one tile: the latency term
    bool ordered = false;         // reductions: contributions meet in rank order in every result
};

/// Runs every rank's steps symbolically, tile by tile, over FIFO channels with credits: one
/// simulated run settles the outcome, since lanes never poll for a choice (a Kahn network).
/// Checks: each output chunk ends up `final` (or raw where nothing is reduced) and holds every
/// rank's contribution exactly once (broadcast: the root's; barrier: every rank's at least once);
/// forms match between sender and receiver and along local values; message sizes agree; nothing is
/// read before it was written, and nothing is overwritten by one lane while another still needs it;
/// all ranks hold bitwise the same result (operand order included).
///
/// Nothing is sampled or taken for symmetric: every step of every rank is executed, for as many
/// tiles as it takes to use each credit and slot again. Values are numbers of what they are made of
/// (values.h), so that equal words are equal contributions, order and roundings, but for a
/// collision of random 128-bit sums. Memory: the schedules (some 70 bytes a step); 16 bytes for
/// each place of a buffer in every tile that is under way; 8 for a channel, 48 for a message on its
/// way and about as much for each different partial result.
Verdict verify(const VerifyRequest& asked,
               const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes);

}  // namespace tutti
