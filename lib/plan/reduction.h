// A call's operator, resolved: its kernels, the preparation of a rank's own data, and the parts on
// which all ranks must agree.
#pragma once

#include <optional>

#include "engine/prepare.h"
#include "plan/call.h"
#include "reduce/operators.h"

namespace tutti {

struct Reduction {
    Reducer reducer = Reducer::mover(1);  // of the data as the caller has it
    bool prepared = false;                // inputs are in the accumulator's form before they travel
    std::optional<Factor> factor;         // a pre-multiplied sum's, of this rank
    bool ordered = false;                 // contributions must meet in the order of the ranks
    uint32_t tag_bits = 0;                // the operator in Tag::call
    uint64_t hash = 0;                    // the rest of what ranks agree on

    /// Bytes per element (of the reducer) of what travels before anything was combined.
    std::size_t raw_bytes() const { return reducer.bytes(prepared ? Width::partial : Width::raw); }
};

/// owner: the communicator's serial. invalid for an operator that is unknown, does not go with the
/// dtype or the collective, or belongs to another communicator.
Result<Reduction> reduction_of(const Call& call, uint64_t owner);

/// avg: how many contributions there are, else 1.
int32_t divisor_of(const Call& call, Rank ranks);

}  // namespace tutti
