// Simulates a collective as the library would run it: with the library's selection, tiles and
// chunks.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "proof/simulate.h"
#include "reduce/reduce.h"
#include "select/selection.h"

namespace tutti::sim {

struct Experiment {
    Collective collective = Collective::allreduce;
    Rank ranks = 1;
    Rank root = 0;
    uint64_t bytes = 0;  // of the larger buffer
    Dtype dtype = Dtype::float32;
    std::string_view algorithm;  // "": the selection chooses
    uint32_t lanes = 0;          // 0: the selection chooses
    Network network;
    bool record = false;
};

/// The placement: which ranks share a host.
Hosts hosts_of(const Experiment& experiment);

/// The library's choice if it may use all its transports. It is never an intrinsic, because an
/// intrinsic has no schedule.
Result<Choice> choose(const Experiment& experiment);

struct Outcome {
    Choice choice;
    uint64_t bytes = 0;  // rounded down to the same number of elements for every rank
    Report report;
};

/// Errors: invalid for a bad network; unsupported for an unknown algorithm, with a list of the
/// existing ones.
Result<Outcome> run(const Experiment& experiment);

}  // namespace tutti::sim
