// 8-bit floats have few enough values to try them all.
#include <cmath>
#include <limits>

#include "reduce/reference.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr Dtype fp8[] = {Dtype::float8_e4m3, Dtype::float8_e5m2};
constexpr std::size_t codes = 256;
constexpr std::size_t pairs = codes * codes;

// Every pair of codes; where wide, as fp32.
struct Operands {
    Operands(const Problem& problem, const std::vector<float>& values)
        : a(pairs * problem.bytes(problem.wa)), b(pairs * problem.bytes(problem.wb)) {
        for (std::size_t i = 0; i < pairs; ++i) {
            put(a, problem.wide(problem.wa), i, i / codes, values);
            put(b, problem.wide(problem.wb), i, i % codes, values);
        }
    }
    static void put(Buffer& to, bool wide, std::size_t i, std::size_t code,
                    const std::vector<float>& values) {
        if (wide) {
            std::memcpy(to.data() + i * sizeof(float), &values[code], sizeof(float));
        } else {
            to[i] = static_cast<std::byte>(code);
        }
    }
    Buffer a, b;
};

std::vector<float> decoded(Dtype dtype) {
    std::vector<uint8_t> all(codes);
    for (std::size_t i = 0; i < codes; ++i) all[i] = static_cast<uint8_t>(i);
    std::vector<float> values(codes);
    Reducer::make(dtype, Op::sum)
        ->move(Width::raw, Width::partial,
               false)({.dst = values.data(), .a = all.data(), .count = codes});
    return values;
}

// The code, sign and quiet bit of the NaN that a ⊕ b hands on; -1 where it is not one of theirs.
int inherited_nan(Dtype dtype, std::size_t pair) {
    const SmallFloat& format = *small_float(dtype);
    for (const std::size_t operand : {pair / codes, pair % codes}) {
        const auto code = static_cast<uint32_t>(operand);
        const uint32_t quiet = format.infinity ? 1u << (format.mantissa_bits - 1) : 0;
        if (format.is_nan(code)) return static_cast<int>(code | quiet);
    }
    return -1;
}

void check_all(const Problem& problem, const std::vector<float>& values) {
    const Operands operands(problem, values);
    Buffer expected(pairs * problem.bytes(problem.wr)), first;
    reference(problem, operands.a.data(), operands.b.data(), expected.data(), pairs);
    const bool exact = problem.op == Op::max || problem.op == Op::min;
    const Reducer reducer = *Reducer::make(problem.dtype, problem.op);
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        Buffer got(expected.size());
        reducer.reduce(problem.wa, problem.wb, problem.wr, false)({.dst = got.data(),
                                                                   .a = operands.a.data(),
                                                                   .b = operands.b.data(),
                                                                   .count = pairs,
                                                                   .divisor = problem.divisor});
        const std::size_t at = first_difference(problem, got.data(), expected.data(), pairs, exact);
        INFO(problem.text() << " on " << target << ", pair " << at);
        REQUIRE(at == pairs);
        if (!exact && !problem.wide(problem.wr)) {
            std::size_t wrong = pairs;
            for (std::size_t i = 0; i < pairs; ++i) {
                const int nan = inherited_nan(problem.dtype, i);
                if (nan >= 0 && nan != static_cast<int>(got[i])) wrong = std::min(wrong, i);
            }
            INFO("NaN of pair " << wrong);
            REQUIRE(wrong == pairs);
        }
        // NaNs that the operation made have the same bits everywhere too.
        if (first.empty()) first = got;
        REQUIRE(got == first);
    }
}

}  // namespace

TEST_CASE("fp8: every pair of codes, under every operator, in every form, on every target") {
    for (const Dtype dtype : fp8) {
        const std::vector<float> values = decoded(dtype);
        for (const Op op : all_ops()) {
            if (is_bitwise(op)) continue;
            for (int forms = 0; forms < 8; ++forms) {
                Problem problem = problem_of(dtype, op, forms);
                for (const int32_t divisor : {2, 3, 1000, 4095, 4099, 1 << 22}) {
                    problem.divisor = divisor;
                    check_all(problem, values);
                    if (op != Op::avg) break;
                }
            }
        }
    }
}

TEST_CASE("fp8: floats of every exponent round to nearest even, ties and their neighbours first") {
    for (const Dtype dtype : fp8) {
        // 16 steps around every number of four bits after the point, and two in their middle.
        std::vector<float> values;
        for (uint32_t top = 0; top < 1u << 13; ++top) {
            for (int step = -8; step < 8; ++step) {
                values.push_back(std::bit_cast<float>((top << 19) + static_cast<uint32_t>(step)));
            }
            values.push_back(std::bit_cast<float>((top << 19) + 0x3ffff));
            values.push_back(std::bit_cast<float>((top << 19) + 0x40000));
        }
        Problem problem{dtype, Op::sum};
        problem.wa = Width::partial;
        Buffer expected(values.size()), got(values.size());
        const auto* from = reinterpret_cast<const std::byte*>(values.data());
        reference(problem, from, nullptr, expected.data(), values.size());
        const Reducer reducer = *Reducer::make(dtype, Op::sum);
        for (const std::string_view target : simd_targets()) {
            const TargetScope scope(target);
            reducer.move(Width::partial, Width::final,
                         false)({.dst = got.data(), .a = values.data(), .count = values.size()});
            const std::size_t at =
                first_difference(problem, got.data(), expected.data(), values.size(), false);
            INFO(dtype_name(dtype)
                 << " on " << target << ", value " << (at < values.size() ? values[at] : 0));
            REQUIRE(at == values.size());
        }
    }
}
