// A call's operator, resolved: its kernels, the preparation of a rank's own data, and the parts on
// which all ranks must agree.
#pragma once

#include <optional>

#include "engine/prepare.h"
#include "plan/call.h"
#include "reduce/operators.h"

namespace tutti {

struct Reduction {
    Reducer reducer = Reducer::mover(1);  // for the data in the caller's form
    // A pass (engine/prepare.h) multiplies or adds up this rank's inputs before the collective. Its
    // results, in the accumulator's form, are what the rank sends.
    bool prepared = false;
    std::optional<Factor> factor;  // of a pre-multiplied sum: this rank's scalar
    bool ordered = false;          // not commutative: combine contributions in the ranks' order
    uint32_t tag_bits = 0;         // the operator in Tag::call
    uint64_t hash = 0;  // facts about the operator that ranks must agree on, not in tag_bits

    /// Bytes per element (of the reducer) of a rank's contribution on the wire.
    std::size_t raw_bytes() const { return reducer.bytes(prepared ? Width::partial : Width::raw); }
};

/// Resolves the call's operator. owner: the communicator's serial. invalid for an operator that is
/// unknown, does not go with the dtype or the collective, or belongs to another communicator.
Result<Reduction> reduction_of(const Call& call, uint64_t owner);

/// The number by which the sum of an avg is divided: its contributions. 1 for other operators.
int32_t divisor_of(const Call& call, Rank ranks);

}  // namespace tutti
