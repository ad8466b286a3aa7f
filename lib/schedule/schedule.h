// A collective as data: each rank's steps, in order, in chunks. Pure: no I/O, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.h"
#include "base/types.h"
#include "schedule/cost.h"
#include "schedule/hosts.h"

namespace tutti {

/// The memory that holds a chunk. Every schedule must also be correct in place, that is, when
/// chunks of input and output at the same position (places.h) share their memory.
enum class Space : uint8_t { none, input, output, scratch };

/// The representation of a value. Bind fixes the bytes per element of each form; in a lossless
/// reduction all three coincide.
enum class Form : uint8_t {
    raw,      // as the user gave it
    partial,  // a running result in the accumulator type (fp32 for 16- and 8-bit floats)
    final,    // the finished result, rounded once
};

/// For blocks in transit when all blocks have one size: any chunk gives the length.
inline constexpr uint32_t any_chunk = ~0u;

/// One chunk's place. `chunk` says which part of the data it is, and so its length. A scratch
/// region also names its slot; a slot is as long as a tile's longest chunk, and every tile reuses
/// it.
struct Region {
    Space space = Space::none;
    uint32_t chunk = 0;
    uint32_t slot = 0;

    static constexpr Region input(uint32_t chunk) { return {Space::input, chunk, 0}; }
    static constexpr Region output(uint32_t chunk) { return {Space::output, chunk, 0}; }
    static constexpr Region scratch(uint32_t slot, uint32_t chunk) {
        return {Space::scratch, chunk, slot};
    }
    explicit operator bool() const { return space != Space::none; }
    bool operator==(const Region&) const = default;
};

inline constexpr uint32_t no_lane = ~0u;

/// A step of another lane that must have finished this tile first.
struct After {
    uint32_t lane = no_lane;
    uint32_t step = 0;
    explicit operator bool() const { return lane != no_lane; }
    bool operator==(const After&) const = default;
};

/// Scratch slots in bursts: `burst` consecutive ones, every `period`. 0: all are consecutive.
struct SlotPattern {
    uint32_t burst = 0;
    uint32_t period = 0;
    constexpr uint32_t offset(uint32_t i) const {
        return burst == 0 ? i : i / burst * period + i % burst;
    }
    bool operator==(const SlotPattern&) const = default;
};

/// value = recv ⊕ local (or the one that is given); store it to out; forward it to send. At least
/// one of local and out is given: it determines the size.
struct Step {
    Rank recv = nobody;
    Region local;
    Region out;
    Rank send = nobody;
    uint32_t chunks = 1;       // a run of consecutive chunks (and scratch slots): one message
    SlotPattern slots;         // the run's scratch slots, if they are not consecutive
    bool local_first = false;  // operand order: local ⊕ recv instead of recv ⊕ local
    bool keep = false;         // the message stays: the lane's next receive from this peer sees it
    Form in = Form::raw;       // the form of the received message
    Form local_form = Form::raw;
    Form result = Form::raw;  // the form of the stored and forwarded value
    After after;

    /// The region that determines how much data the step moves.
    const Region& extent() const { return local ? local : out; }
    bool reduces() const { return recv != nobody && static_cast<bool>(local); }
    bool operator==(const Step&) const = default;
};

/// Steps in order. A lane runs all its steps for tile 0, then all for tile 1, and so on.
using Lane = std::vector<Step>;

/// One rank's part of a collective. Lane l of one rank exchanges messages with lane l of other
/// ranks. A tile of the data is cut into `chunks` chunks; lanes share the numbering, and each works
/// on its own chunks.
///
/// A chunk's meaning depends on the collective's cut (places.h): a part of the whole message, of
/// one rank's block (chunk = part × ranks + block) or of one pair's block (chunk = part × ranks² +
/// source × ranks + destination).
struct Schedule {
    uint32_t chunks = 1;
    uint32_t cycle = 0;        // runs of chunks wrap around in cycles of this length; 0: never
    uint32_t longest_run = 1;  // the most chunks in a message of any rank: all ranks cut their
                               // tiles by it
    uint32_t scratch_slots = 0;
    bool sends_partials = true;  // with more than two ranks; false: no message of any rank holds
                                 // partial results
    std::vector<Lane> lanes;

    /// Whether tiles must be cut so that a message has room for partial results. With two ranks,
    /// each has both contributions when it adds, and finishes the sum.
    bool may_send_partials(Rank ranks) const { return sends_partials && ranks > 2; }

    /// The i-th chunk of a run.
    uint32_t chunk_at(uint32_t first, uint32_t i) const {
        if (first == any_chunk) return any_chunk;
        if (cycle == 0) return first + i;
        const uint32_t start = first / cycle * cycle;
        return start + (first - start + i) % cycle;
    }
};

/// The input of an algorithm: it generates a schedule for this request.
struct ScheduleRequest {
    Rank ranks = 1;
    Rank rank = 0;
    Rank root = 0;                 // rooted collectives only
    uint32_t lanes = 1;            // the number of lanes for a large message; a hint
    const Hosts* hosts = nullptr;  // of these ranks; nullptr: unknown, assumed to be one host
};

/// An algorithm: a pure function that returns one rank's schedule. For requests that differ only in
/// `rank`, all schedules have the same chunks and number of lanes.
struct Algorithm {
    std::string_view name;
    Collective collective;
    std::string_view summary;  // one line: for people, and for --explain
    Schedule (*make)(const ScheduleRequest&);
    Growth steps;  // of the rank with the most; generating them takes as much time
    /// Combines contributions in another order than that of the ranks: only for commutative
    /// operators.
    bool reorders = false;
    /// Blocks travel through ranks that do not know their sizes: all blocks must have one size.
    bool even_only = false;
    /// Empty if it can serve this many ranks on such hosts, else the reason why not.
    std::string (*unsupported)(Rank ranks, const HostShape& hosts) = nullptr;
    /// For tutti's own choice. Without it, a call gets the algorithm only by name.
    Cost (*cost)(Rank ranks) = nullptr;
    /// For an algorithm of two levels: `cost` takes the number of hosts, and is that of the outer
    /// schedule for one stripe of the data; this is the cost of the steps within the largest host.
    Cost (*inner_cost)(Rank ranks) = nullptr;
    /// With two levels and one stripe: only the lowest rank of a host works between hosts.
    bool one_stripe = false;
};

}  // namespace tutti
