// What goes in and what must come out: small integers, exact in every element type, so that every
// element of a result can be checked to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/tutti.h"

namespace bench {

/// One period of a buffer's contents. Its length is prime: a chunk that ends up in another's place
/// does not look right by accident.
struct Pattern {
    tutti_dtype dtype = TUTTI_UINT8;
    std::size_t element_bytes = 1;
    bool rounded = false;  // the last bit depends on how the average was computed
    std::vector<std::byte> bytes;
};

/// Whether the operator makes sense for the type: the bitwise ones are for integers.
bool op_fits(tutti_op op, tutti_dtype dtype);

/// What a rank contributes.
Pattern input_pattern(tutti_dtype dtype, tutti_op op, int rank, int ranks);
/// What all ranks' contributions come to.
Pattern expected_pattern(tutti_dtype dtype, tutti_op op, int ranks);

void fill(std::span<std::byte> buffer, const Pattern& pattern);
/// How many elements differ from the pattern.
uint64_t count_wrong(std::span<const std::byte> buffer, const Pattern& pattern);

/// The bits of a value in an element type, rounded to nearest even once. Infinity, or NaN where the
/// type has none, above its range.
uint64_t encode(tutti_dtype dtype, double value);

}  // namespace bench
