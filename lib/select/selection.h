// Selects the algorithm, its number of lanes and the size of its messages. Every rank selects the
// same, because the choice depends only on values that all ranks have agreed on.
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
    // The largest message between hosts that are far apart; 0: they are not.
    std::size_t far_message_bytes = 0;
    uint32_t credits = 8;             // messages of a lane that may be in flight
    std::string_view intrinsic;       // the group's name, "" if there is none
    std::size_t intrinsic_bytes = 0;  // the largest message that the intrinsic takes
    bool intrinsic_sends = false;     // it sends a message to every other rank: no mapped memory
    /// The transports that carry the data, as tuning files name them: "shm", "tcp", "shm+tcp".
    std::string wire = "tcp";
    double crowding = 1;  // ranks per core on the fullest machine, at least 1
    Constants constants = default_constants("tcp", {});
    // The preferred transport's constants within a host.
    Constants inner_constants = default_constants("shm", {});
    const Tuning* tuning = nullptr;
};

struct Choice {
    const Algorithm* algorithm = nullptr;  // nullptr: the intrinsic
    std::string_view name;
    uint32_t lanes = 1;
    std::size_t message_bytes = 0;
    std::string reason;       // for --explain
    Terms terms{};            // the counts of the model
    double inner_us = 0;      // of two levels: the predicted time of the steps within a host
    double predicted_us = 0;  // of the whole operation; 0: the model does not cover it
};

inline constexpr uint32_t max_lanes_per_stream = 8;

/// The properties of a call that selection uses.
struct Question {
    Collective collective = Collective::allreduce;
    std::size_t bytes = 0;       // of the whole message, or of all blocks of one buffer
    bool uneven = false;         // blocks of different lengths
    bool ordered = false;        // the operator is not commutative
    uint32_t widening = 1;       // the width of a partial result in inputs
    std::string_view wanted;     // the call's algorithm, mandatory; "": tutti chooses
    std::string_view preferred;  // the environment's algorithm, used if it fits
};

/// By precedence: the call's algorithm, the environment's, the first rule of the tuning file that
/// fits, the cost model. unsupported lists the algorithms that can serve the call.
Result<Choice> select(const Question& question, const SelectionInput& input);

/// All choices that could serve the call: the fastest in the model first, those that it does not
/// cover last.
std::vector<Choice> candidates(const Question& question, const SelectionInput& input);

}  // namespace tutti
