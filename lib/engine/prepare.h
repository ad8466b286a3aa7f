// Prepares a rank's own data before a collective begins: adds several inputs up, or multiplies a
// sum's operands. One pass, in the accumulator's form, without rounding.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "engine/work_memory.h"
#include "reduce/reduce.h"
#include "transport/operation.h"

namespace tutti {

/// A factor for every element, in the accumulator's form.
using Factor = std::array<std::byte, 8>;

struct PrepareRequest {
    Reducer reducer = Reducer::mover(1);  // of the inputs as they are; a sum if there is a factor
    Dtype dtype = Dtype::uint8;
    std::size_t elements = 0;  // of each input, in the reducer's elements
    int32_t inputs = 1;
    bool list = false;  // start() is given an array of the inputs' addresses as its `in`
    std::optional<Factor> factor;
    bool in_output = false;  // the output has room for the prepared input
    WorkMemory* prepared =
        nullptr;  // else the prepared input is there; nullptr: the operation may run beside others
};

/// An operation that prepares its input in start() and then runs `inner`, which must have been
/// bound with reducer.widened(). Each input may be the output. start() reads the array of
/// addresses.
std::unique_ptr<Operation> prepare(const PrepareRequest& request, std::unique_ptr<Operation> inner);

}  // namespace tutti
