// A slow reference for the reduction kernels: values are doubles, and a small float is found as the
// nearest of all its type's values.
#pragma once

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reduce/reduce.h"
#include "reduce/targets.h"

namespace tutti::test {

/// Selects an instruction set until the end of the scope.
class TargetScope {
public:
    explicit TargetScope(std::string_view name) : known(select_simd_target(name)) {}
    TargetScope(const TargetScope&) = delete;
    TargetScope& operator=(const TargetScope&) = delete;
    ~TargetScope() { select_simd_target(""); }
    const bool known;
};

/// A binary float of up to 16 bits.
struct SmallFloat {
    int exponent_bits;
    int mantissa_bits;
    bool infinity;

    int bytes() const { return (exponent_bits + mantissa_bits + 1) / 8; }
    uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
    uint32_t first_special() const;  // infinity's code, or the NaN's where there is none
    bool is_nan(uint32_t code) const;
    double decode(uint32_t code) const;
    /// Nearest, ties to even; a NaN becomes some NaN.
    uint32_t encode(double value) const;
};

/// Null for the dtypes that are not small floats.
const SmallFloat* small_float(Dtype dtype);

std::vector<Dtype> all_dtypes();
std::vector<Op> all_ops();
bool is_bitwise(Op op);

using Buffer = std::vector<std::byte>;

/// One element, of a dtype (wide: float32 in the place of a small float).
double load_float(Dtype dtype, bool wide, const std::byte* p);
bool element_is_nan(Dtype dtype, bool wide, const std::byte* p);

struct Problem {
    Dtype dtype;
    Op op;
    Width wa = Width::raw, wb = Width::raw, wr = Width::final;
    int32_t divisor = 1;

    bool widened() const;
    bool wide(Width width) const { return width == Width::partial && widened(); }
    std::size_t bytes(Width width) const;
    std::string text() const;
};

/// forms: 0 … 7, a bit each for a, b and the result where they are partial.
inline Problem problem_of(Dtype dtype, Op op, int forms) {
    return {.dtype = dtype,
            .op = op,
            .wa = (forms & 1) != 0 ? Width::partial : Width::raw,
            .wb = (forms & 2) != 0 ? Width::partial : Width::raw,
            .wr = (forms & 4) != 0 ? Width::partial : Width::final};
}

/// dst = a ⊕ b; b null: the one-operand conversion.
void reference(const Problem& problem, const std::byte* a, const std::byte* b, std::byte* dst,
               std::size_t count);

/// Numbers of ordinary size, random bits, and the special values, mixed.
Buffer random_elements(Dtype dtype, bool wide, std::size_t count, std::mt19937_64& random);

/// The first element that differs, or count. Two NaNs are equal where exact is false.
std::size_t first_difference(const Problem& problem, const std::byte* got,
                             const std::byte* expected, std::size_t count, bool exact);

std::string hex(const std::byte* p, std::size_t bytes);

}  // namespace tutti::test
