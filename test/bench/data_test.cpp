// tutti-bench --check must see what is wrong: its expectations are held against plain arithmetic,
// and every kind of damage is counted.
#include "bench/data.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/catch.h"

using namespace bench;

namespace {

template <typename T>
std::vector<T> values_of(const Pattern& pattern) {
    std::vector<T> values(pattern.bytes.size() / sizeof(T));
    std::memcpy(values.data(), pattern.bytes.data(), values.size() * sizeof(T));
    return values;
}

template <typename T, typename F>
void expect_folded(tutti_dtype dtype, tutti_op op, int ranks, F&& combine) {
    std::vector<T> folded = values_of<T>(input_pattern(dtype, op, 0, ranks));
    for (int rank = 1; rank < ranks; ++rank) {
        const auto next = values_of<T>(input_pattern(dtype, op, rank, ranks));
        for (std::size_t i = 0; i < folded.size(); ++i) folded[i] = combine(folded[i], next[i]);
    }
    REQUIRE(folded == values_of<T>(expected_pattern(dtype, op, ranks)));
}

}  // namespace

TEST_CASE("bench data: expected results are what plain arithmetic gives") {
    for (int ranks : {1, 2, 3, 8}) {
        expect_folded<float>(TUTTI_FLOAT32, TUTTI_SUM, ranks,
                             [](float a, float b) { return a + b; });
        expect_folded<double>(TUTTI_FLOAT64, TUTTI_PROD, ranks,
                              [](double a, double b) { return a * b; });
        expect_folded<int8_t>(TUTTI_INT8, TUTTI_SUM, ranks, [](int8_t a, int8_t b) {
            return static_cast<int8_t>(static_cast<uint8_t>(a) + static_cast<uint8_t>(b));
        });
        expect_folded<uint16_t>(TUTTI_UINT16, TUTTI_MAX, ranks,
                                [](uint16_t a, uint16_t b) { return std::max(a, b); });
        expect_folded<uint32_t>(TUTTI_UINT32, TUTTI_BXOR, ranks,
                                [](uint32_t a, uint32_t b) { return a ^ b; });
        expect_folded<int64_t>(TUTTI_INT64, TUTTI_BAND, ranks,
                               [](int64_t a, int64_t b) { return a & b; });
    }
}

TEST_CASE("bench data: averages are whole numbers") {
    for (int ranks : {1, 2, 3, 4, 7}) {
        std::vector<double> sum(
            values_of<double>(expected_pattern(TUTTI_FLOAT64, TUTTI_AVG, 1)).size());
        for (int rank = 0; rank < ranks; ++rank) {
            const auto part =
                values_of<double>(input_pattern(TUTTI_FLOAT64, TUTTI_AVG, rank, ranks));
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
        }
        const auto expected = values_of<double>(expected_pattern(TUTTI_FLOAT64, TUTTI_AVG, ranks));
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] /= ranks;
        REQUIRE(sum == expected);
    }
}

TEST_CASE("bench data: ranks contribute different values") {
    const Pattern a = input_pattern(TUTTI_FLOAT32, TUTTI_SUM, 0, 2);
    const Pattern b = input_pattern(TUTTI_FLOAT32, TUTTI_SUM, 1, 2);
    REQUIRE(a.bytes != b.bytes);
}

TEST_CASE("bench data: every wrong element is counted, wherever it stands") {
    const Pattern pattern = expected_pattern(TUTTI_FLOAT16, TUTTI_SUM, 2);
    std::vector<std::byte> buffer(3 * pattern.bytes.size() / 2 * 2 + 14);
    fill(buffer, pattern);
    REQUIRE(count_wrong(buffer, pattern) == 0);
    const std::size_t last = buffer.size() - 1;
    for (std::size_t at : {std::size_t{0}, pattern.bytes.size() - 1, pattern.bytes.size(), last}) {
        buffer[at] ^= std::byte{1};
        REQUIRE(count_wrong(buffer, pattern) == 1);
        buffer[at] ^= std::byte{1};
    }
    std::vector<std::byte> shifted(buffer.begin() + 2, buffer.end());
    REQUIRE(count_wrong(shifted, pattern) > shifted.size() / 8);
    REQUIRE(count_wrong({}, pattern) == 0);
}

TEST_CASE("bench data: a block is checked from its own place in the pattern") {
    const Pattern pattern = input_pattern(TUTTI_INT32, TUTTI_SUM, 1, 2);
    const std::size_t period = pattern.bytes.size() / pattern.element_bytes;
    std::vector<std::byte> whole(3 * pattern.bytes.size());
    fill(whole, pattern);
    for (const std::size_t first : {std::size_t{1}, period - 1, period, period + 5}) {
        std::vector<std::byte> part(whole.begin() + static_cast<std::ptrdiff_t>(4 * first),
                                    whole.end());
        REQUIRE(count_wrong(part, pattern, first) == 0);
        REQUIRE(count_wrong(part, pattern, first + 1) > part.size() / 8);
        std::vector<std::byte> filled(part.size());
        fill(filled, pattern, first);
        REQUIRE(filled == part);
        part.back() ^= std::byte{1};
        REQUIRE(count_wrong(part, pattern, first) == 1);
    }
}

TEST_CASE("bench data: values are encoded with one rounding to nearest even") {
    struct Case {
        tutti_dtype dtype;
        double value;
        uint64_t bits;
    };
    const double infinity = std::numeric_limits<double>::infinity();
    for (const Case& c : std::vector<Case>{{TUTTI_FLOAT16, 1.0, 0x3c00},
                                           {TUTTI_FLOAT16, -2.0, 0xc000},
                                           {TUTTI_FLOAT16, 65504.0, 0x7bff},
                                           {TUTTI_FLOAT16, 65520.0, 0x7c00},
                                           {TUTTI_FLOAT16, 2049.0, 0x6800},
                                           {TUTTI_FLOAT16, std::ldexp(1.0, -24), 0x0001},
                                           {TUTTI_BFLOAT16, 1.0, 0x3f80},
                                           {TUTTI_BFLOAT16, 257.0, 0x4380},
                                           {TUTTI_FLOAT8_E4M3, 448.0, 0x7e},
                                           {TUTTI_FLOAT8_E4M3, 1000.0, 0x7f},
                                           {TUTTI_FLOAT8_E5M2, 1.0, 0x3c},
                                           {TUTTI_FLOAT8_E5M2, 1e6, 0x7c},
                                           {TUTTI_INT8, -1.0, ~uint64_t{0}},
                                           {TUTTI_FLOAT32, -0.0, 0x80000000}}) {
        INFO("dtype " << c.dtype << " value " << c.value);
        REQUIRE(encode(c.dtype, c.value) == c.bits);
    }
    REQUIRE(encode(TUTTI_FLOAT64, infinity) == 0x7ff0000000000000);
}

TEST_CASE("bench data: bitwise operators are for integers, averages for whole groups") {
    const Collective& allreduce = *find_collective("allreduce");
    REQUIRE(op_fits(allreduce, TUTTI_BXOR, TUTTI_UINT8));
    REQUIRE_FALSE(op_fits(allreduce, TUTTI_BXOR, TUTTI_FLOAT8_E5M2));
    REQUIRE(op_fits(allreduce, TUTTI_AVG, TUTTI_FLOAT8_E5M2));
    REQUIRE(op_fits(*find_collective("scan"), TUTTI_MAX, TUTTI_FLOAT32));
    REQUIRE_FALSE(op_fits(*find_collective("scan"), TUTTI_AVG, TUTTI_FLOAT32));
    REQUIRE_FALSE(op_fits(*find_collective("exscan"), TUTTI_AVG, TUTTI_INT8));
}
