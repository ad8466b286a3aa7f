// Inputs and expected results: small integers, exact in every element type, so that every element
// of a result can be checked to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives.h"
#include "tutti/tutti.h"

namespace bench {

/// One period of a buffer's contents. Its length is prime, so that a chunk in the wrong place does
/// not look right by accident.
struct Pattern {
    tutti_dtype dtype = TUTTI_UINT8;
    std::size_t element_bytes = 1;
    bool rounded = false;  // the last bit depends on how the average was computed
    std::vector<std::byte> bytes;
};

/// Whether the operator makes sense for the type and the collective: the bitwise ones are for
/// integers, and an average needs a divisor that is the same on every rank, which prefixes lack.
bool op_fits(const Collective& collective, tutti_op op, tutti_dtype dtype);

/// A rank's input.
Pattern input_pattern(tutti_dtype dtype, tutti_op op, int rank, int ranks);
/// The combined inputs of the first `ranks` ranks. For an average, `ranks` must be all ranks.
Pattern expected_pattern(tutti_dtype dtype, tutti_op op, int ranks);
/// A pattern that no rank contributes.
Pattern poison_pattern(tutti_dtype dtype);

/// Fills the buffer with repetitions of the pattern, beginning with its element number `first`.
void fill(std::span<std::byte> buffer, const Pattern& pattern, std::size_t first = 0);
/// The number of elements that differ from the pattern.
uint64_t count_wrong(std::span<const std::byte> buffer, const Pattern& pattern,
                     std::size_t first = 0);

/// The bits of a value in an element type, rounded to nearest even once. A value above the type's
/// range becomes infinity, or NaN if the type has no infinity.
uint64_t encode(tutti_dtype dtype, double value);

}  // namespace bench
