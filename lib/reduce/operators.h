// The operators that the program has made: a table of the process, by handle.
#pragma once

#include <array>
#include <cstdint>

#include "reduce/reduce.h"

namespace tutti {

/// Handles count up from here and are never reused, so find_operator() detects an old one.
inline constexpr int32_t first_user_op = 1024;
constexpr bool is_user_op(Op op) {
    return static_cast<int32_t>(op) >= first_user_op;
}

struct UserOperator {
    enum class Kind : uint8_t { function, premul_sum };
    Kind kind = Kind::function;
    // Part of the tag, so that ranks compare it: the number-th function of the process, set by
    // add_operator(), or the number-th pre-multiplied sum of the communicator. Counts from 1.
    uint32_t number = 0;

    // A function.
    UserFunction::Combine combine = nullptr;
    void* user = nullptr;
    bool commutative = true;
    uint32_t item = 1;

    // A pre-multiplied sum.
    uint64_t owner = 0;  // the communicator's serial
    Dtype scalar_dtype = Dtype::float32;
    std::array<std::byte, 8> scalar{};
};

/// Adds an operator and returns its handle. Any thread may call these functions.
Op add_operator(UserOperator op);
/// invalid for a handle that was destroyed or never existed.
Result<UserOperator> find_operator(Op op);
/// invalid for a handle that find_operator rejects, and for built-in operators.
Result<> remove_operator(Op op);

}  // namespace tutti
