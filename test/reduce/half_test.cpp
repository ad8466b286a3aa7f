// 16-bit floats: kernels that are quick about ordinary numbers must notice all others.
#include <cmath>
#include <limits>

#include "reduce/reference.h"
#include "support/catch.h"
#include "support/sanitized.h"

using namespace tutti;
using namespace tutti::test;

namespace {

// Codes on both sides of every limit: zero, subnormal, normal, infinite, NaN.
std::vector<uint16_t> unusual_codes(const SmallFloat& format) {
    const uint32_t infinity = format.first_special();
    const uint32_t normal = 1u << format.mantissa_bits;
    std::vector<uint16_t> codes;
    for (const uint32_t code : {0u, 1u, normal - 1, normal, normal + 1, infinity - 1, infinity,
                                infinity + 1, infinity + normal / 2, format.sign_bit() - 1}) {
        codes.push_back(static_cast<uint16_t>(code));
        codes.push_back(static_cast<uint16_t>(code | format.sign_bit()));
    }
    return codes;
}

Buffer ordinary_numbers(const SmallFloat& format, std::size_t count, std::mt19937_64& random) {
    std::normal_distribution<double> ordinary(0.0, 3.0);
    Buffer buffer(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto code = static_cast<uint16_t>(format.encode(ordinary(random)));
        std::memcpy(buffer.data() + 2 * i, &code, 2);
    }
    return buffer;
}

Buffer reduced(const Problem& problem, const Buffer& a, const Buffer& b) {
    Buffer result(a.size());
    Reducer::make(problem.dtype, problem.op)
        ->reduce(Width::raw, Width::raw, Width::final, false)({.dst = result.data(),
                                                               .a = a.data(),
                                                               .b = b.data(),
                                                               .count = a.size() / 2,
                                                               .divisor = problem.divisor});
    return result;
}

void check(const Problem& problem, const Buffer& a, const Buffer& b) {
    const std::size_t count = a.size() / 2;
    Buffer expected(a.size()), first;
    reference(problem, a.data(), b.data(), expected.data(), count);
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        const Buffer got = reduced(problem, a, b);
        const std::size_t at = first_difference(problem, got.data(), expected.data(), count, false);
        INFO(problem.text() << " on " << target << ", element " << at);
        REQUIRE(at == count);
        if (first.empty()) first = got;
        REQUIRE(got == first);  // NaNs too
    }
}

// Divisors by which one multiplies, divides, and goes the long way (Powers::largest_divisor).
constexpr struct {
    Op op;
    int32_t divisor;
} cases[] = {{Op::sum, 1}, {Op::prod, 1}, {Op::avg, 3}, {Op::avg, 4}, {Op::avg, 5000}};

}  // namespace

TEST_CASE("16-bit floats: one unusual number among ordinary ones, at every place of a sum") {
    const uint64_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t count = 96;
    // Steps that share no factor with the length of a vector come to all its places.
    constexpr std::size_t near = tutti::test::sanitized ? 5 : 1, far = near * 5;
    for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
        const SmallFloat& format = *small_float(dtype);
        for (const auto& [op, divisor] : cases) {
            const Problem problem{.dtype = dtype, .op = op, .divisor = divisor};
            Buffer a = ordinary_numbers(format, count, random);
            Buffer b = ordinary_numbers(format, count, random);
            check(problem, a, b);
            for (const uint16_t code : unusual_codes(format)) {
                for (std::size_t at = 0; at < 2 * count; at += op == Op::sum ? near : far) {
                    std::byte* place = (at < count ? a : b).data() + 2 * (at % count);
                    uint16_t before;
                    std::memcpy(&before, place, 2);
                    std::memcpy(place, &code, 2);
                    check(problem, a, b);
                    std::memcpy(place, &before, 2);
                }
            }
        }
    }
}

TEST_CASE("16-bit floats: all unusual numbers with each other, and results past both ends") {
    for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
        const SmallFloat& format = *small_float(dtype);
        std::vector<uint16_t> codes = unusual_codes(format);
        // Their sums and products are just inside or outside of what is normal.
        for (const double value : {0.0078125, 0.0078, 256.0, 255.75, 32768.0, 32752.0, 16.0}) {
            codes.push_back(static_cast<uint16_t>(format.encode(value)));
            codes.push_back(static_cast<uint16_t>(format.encode(-value)));
        }
        // A vector of each pair: else another pair's being unusual would hide this one's.
        constexpr std::size_t lanes = 64;
        for (const auto& [op, divisor] : cases) {
            const Problem problem{.dtype = dtype, .op = op, .divisor = divisor};
            for (const uint16_t x : codes) {
                for (const uint16_t y : codes) {
                    Buffer a(2 * lanes), b(2 * lanes);
                    for (std::size_t i = 0; i < lanes; ++i) {
                        std::memcpy(a.data() + 2 * i, &x, 2);
                        std::memcpy(b.data() + 2 * i, &y, 2);
                    }
                    check(problem, a, b);
                }
            }
        }
    }
}
