// A collective is data: what each rank does, in order, in chunks. Pure: no I/O, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.h"
#include "base/types.h"

namespace tutti {

/// Where a chunk lives. Input chunk c and output chunk c are the same memory when a call is in
/// place, and every schedule must be right both ways.
enum class Space : uint8_t { none, input, output, scratch };

/// How a value is represented. Bind fixes the bytes per element of each form; in a lossless
/// reduction all three coincide.
enum class Form : uint8_t {
    raw,      // as the user gave it
    partial,  // a running result in the accumulator type (fp32 for 16- and 8-bit floats)
    final,    // the finished result, rounded once
};

/// One chunk's place. `chunk` says which part of the data it is, hence how many bytes. A scratch
/// region also names the slot that holds it; slots are a tile's chunk long and reused by every
/// tile.
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

/// value = recv ⊕ local (or whichever of the two is there); store it to out; forward it to send.
/// At least one of local and out is set: it gives the size.
struct Step {
    Rank recv = nobody;
    Region local;
    Region out;
    Rank send = nobody;
    uint32_t chunks = 1;       // a run of consecutive chunks (and scratch slots)
    bool local_first = false;  // operand order: local ⊕ recv instead of recv ⊕ local
    Form in = Form::raw;       // what arrives
    Form local_form = Form::raw;
    Form result = Form::raw;  // what is stored and forwarded
    After after;

    /// The region that says how much data the step moves.
    const Region& extent() const { return local ? local : out; }
    bool reduces() const { return recv != nobody && static_cast<bool>(local); }
    bool operator==(const Step&) const = default;
};

/// Steps in order. A lane runs all its steps for tile 0, then all for tile 1, and so on.
using Lane = std::vector<Step>;

/// One rank's part of a collective. Lane l of one rank talks to lane l of another. A tile of the
/// message is cut into `chunks` chunks; lanes share the numbering, each works on its own.
struct Schedule {
    uint32_t chunks = 1;
    uint32_t scratch_slots = 0;
    std::vector<Lane> lanes;
};

/// What an algorithm is asked for.
struct ScheduleRequest {
    Rank ranks = 1;
    Rank rank = 0;
    Rank root = 0;       // rooted collectives only
    uint32_t lanes = 1;  // how many lanes a large message should be striped over; a hint
};

/// An algorithm: a pure function to one rank's schedule. All ranks get the same chunks and number
/// of lanes for the same request but for `rank`.
struct Algorithm {
    std::string_view name;
    Collective collective;
    std::string_view summary;  // one line: for people, and for --explain
    Schedule (*make)(const ScheduleRequest&);
    /// Empty if it can serve this many ranks, else why not.
    std::string (*unsupported)(Rank ranks) = nullptr;
};

}  // namespace tutti
