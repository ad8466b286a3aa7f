// Which algorithm, over how many lanes, in messages of what size: the same on every rank, because
// it depends only on what all ranks agreed on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.h"
#include "base/result.h"
#include "schedule/schedule.h"
#include "select/cost.h"
#include "select/tuning.h"

namespace tutti {

/// The properties of a communicator that selection may use.
struct SelectionInput {
    Rank ranks = 1;
    bool one_host = false;
    HostShape hosts;
    bool mapped = false;                // all channels are shared memory
    std::size_t max_message_bytes = 0;  // of every transport that may be used
    // The most that a message may hold between hosts that lie far apart; 0: they do not.
    std::size_t far_message_bytes = 0;
    uint32_t credits = 8;             // messages of a lane that may be under way
    std::string_view intrinsic;       // the group's name, "" if there is none
    std::size_t intrinsic_bytes = 0;  // the largest message the intrinsic takes
    bool intrinsic_sends = false;     // a message to each of the others: no mapped memory
    /// The transports that carry the data, as tuning files name them: "shm", "tcp", "shm+tcp".
    std::string wire = "tcp";
    double crowding = 1;  // ranks per core on the fullest machine, at least 1
    Constants constants = default_constants("tcp", {});
    Constants inner_constants = default_constants("shm", {});  // of the preferred, within a host
    const Tuning* tuning = nullptr;
};

struct Choice {
    const Algorithm* algorithm = nullptr;  // nullptr: the intrinsic
    std::string_view name;
    uint32_t lanes = 1;
    std::size_t message_bytes = 0;
    std::string reason;       // for --explain
    Terms terms{};            // what the model counts
    double inner_us = 0;      // of two levels: predicted for what the ranks of a host do
    double predicted_us = 0;  // of all; 0: the model knows nothing of it
};

inline constexpr uint32_t max_lanes_per_stream = 8;

/// The properties of a call that selection uses.
struct Question {
    Collective collective = Collective::allreduce;
    std::size_t bytes = 0;       // of the whole message, or of all blocks of one buffer
    bool uneven = false;         // blocks of different lengths
    bool ordered = false;        // the operator is not commutative
    uint32_t widening = 1;       // how many times as wide as an input a partial result is
    std::string_view wanted;     // the call's algorithm: an order; "" for tutti's choice
    std::string_view preferred;  // the environment's: where it fits
};

/// By precedence: the call's wish, the environment's, the first rule of the tuning file that fits,
/// the cost model. unsupported lists the algorithms that can.
Result<Choice> select(const Question& question, const SelectionInput& input);

/// All that could serve, as the model sees them: the fastest first, those it does not know last.
std::vector<Choice> candidates(const Question& question, const SelectionInput& input);

}  // namespace tutti
