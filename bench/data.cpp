#include "data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace bench {
namespace {

constexpr std::size_t period = 65'521;
constexpr std::byte poison{0xA5};

bool is_float(tutti_dtype dtype) {
    return dtype >= TUTTI_FLOAT16;
}
bool is_signed(tutti_dtype dtype) {
    return is_float(dtype) || dtype % 2 == 0;
}
bool is_bitwise(tutti_op op) {
    return op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR;
}

uint64_t mix(uint64_t index, int rank) {  // splitmix64
    uint64_t z = index * 64 + static_cast<uint64_t>(rank) + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// The number of values that a sum draws from: few in small types, so that sums stay exact.
int value_range(tutti_dtype dtype) {
    switch (dtype) {
        case TUTTI_FLOAT8_E4M3:
        case TUTTI_FLOAT8_E5M2:
            return 4;
        case TUTTI_INT8:
        case TUTTI_UINT8:
            return 8;
        case TUTTI_BFLOAT16:
            return 16;
        case TUTTI_FLOAT16:
            return 128;
        default:
            return 1024;
    }
}

int sum_value(tutti_dtype dtype, uint64_t index, int rank) {
    const int range = value_range(dtype);
    const int value = static_cast<int>(mix(index, rank) % static_cast<uint64_t>(range));
    return is_signed(dtype) ? value - range / 2 : value;
}

// 1 or 2 from the first ranks, 1 from the others, with signs: products stay within ±8.
int product_value(tutti_dtype dtype, uint64_t index, int rank) {
    const uint64_t bits = mix(index, rank);
    const int size = rank < 3 && (bits & 1) != 0 ? 2 : 1;
    return is_signed(dtype) && (bits & 2) != 0 ? -size : size;
}

int average(uint64_t index) {
    return 1 + static_cast<int>(mix(index, 0) % 3);
}

// The deviations of the ranks add up to zero, so the average is a whole number.
int average_value(uint64_t index, int rank, int ranks) {
    if (rank == ranks - 1 && ranks % 2 == 1) return average(index);
    return average(index) + (rank % 2 == 0 ? 1 : -1);
}

int number(tutti_dtype dtype, tutti_op op, uint64_t index, int rank, int ranks) {
    if (op == TUTTI_PROD) return product_value(dtype, index, rank);
    if (op == TUTTI_AVG) return average_value(index, rank, ranks);
    return sum_value(dtype, index, rank);
}

double combine(tutti_op op, double a, double b) {
    switch (op) {
        case TUTTI_MAX:
            return std::max(a, b);
        case TUTTI_MIN:
            return std::min(a, b);
        case TUTTI_PROD:
            return a * b;
        default:
            return a + b;
    }
}

uint64_t combine_bits(tutti_op op, uint64_t a, uint64_t b) {
    if (op == TUTTI_BAND) return a & b;
    return op == TUTTI_BOR ? a | b : a ^ b;
}

uint64_t expected_bits(tutti_dtype dtype, tutti_op op, uint64_t index, int ranks) {
    if (is_bitwise(op)) {
        uint64_t bits = mix(index, 0);
        for (int rank = 1; rank < ranks; ++rank) bits = combine_bits(op, bits, mix(index, rank));
        return bits;
    }
    if (op == TUTTI_AVG) return encode(dtype, average(index));
    double value = number(dtype, op, index, 0, ranks);
    for (int rank = 1; rank < ranks; ++rank)
        value = combine(op, value, number(dtype, op, index, rank, ranks));
    return encode(dtype, value);
}

template <typename Bits>
Pattern make_pattern(tutti_dtype dtype, Bits&& bits_at) {
    Pattern pattern{.dtype = dtype, .element_bytes = tutti_dtype_size(dtype), .bytes = {}};
    pattern.bytes.resize(period * pattern.element_bytes);
    for (std::size_t i = 0; i < period; ++i) {
        const uint64_t bits = bits_at(i);  // little-endian: its first bytes hold the element
        std::memcpy(&pattern.bytes[i * pattern.element_bytes], &bits, pattern.element_bytes);
    }
    return pattern;
}

struct SmallFloat {
    int exponent_bits;
    int mantissa_bits;
    bool has_infinity;
};

SmallFloat layout(tutti_dtype dtype) {
    switch (dtype) {
        case TUTTI_FLOAT16:
            return {5, 10, true};
        case TUTTI_BFLOAT16:
            return {8, 7, true};
        case TUTTI_FLOAT8_E4M3:
            return {4, 3, false};
        default:
            return {5, 2, true};
    }
}

uint64_t encode_small(const SmallFloat& f, double value) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const uint64_t sign = uint64_t{std::signbit(value)} << (f.exponent_bits + f.mantissa_bits);
    const uint64_t implicit = uint64_t{1} << f.mantissa_bits;
    if (value == 0) return sign;
    int exponent = std::max(std::ilogb(value), 1 - bias);
    auto mantissa = static_cast<uint64_t>(
        std::nearbyint(std::ldexp(std::fabs(value), f.mantissa_bits - exponent)));
    if (mantissa == 2 * implicit) {
        mantissa = implicit;
        ++exponent;
    }
    // Adds instead of combining by OR: the implicit bit of a normal number carries into the
    // exponent. A subnormal number has no implicit bit.
    const uint64_t bits =
        (static_cast<uint64_t>(exponent + bias - 1) << f.mantissa_bits) + mantissa;
    const uint64_t all_ones = (uint64_t{1} << (f.exponent_bits + f.mantissa_bits)) - 1;
    const uint64_t limit = f.has_infinity ? all_ones - implicit + 1 : all_ones;
    return sign | std::min(bits, limit);
}

bool close(const std::byte* a, const std::byte* b, tutti_dtype dtype) {
    const auto near = [&]<typename T>(T x, T y) {
        std::memcpy(&x, a, sizeof x);
        std::memcpy(&y, b, sizeof y);
        return std::fabs(x - y) <= 2 * std::numeric_limits<T>::epsilon() * std::fabs(y);
    };
    return dtype == TUTTI_FLOAT32 ? near(0.0F, 0.0F) : near(0.0, 0.0);
}

uint64_t count_wrong_in_period(const std::byte* data, const std::byte* expected, std::size_t bytes,
                               const Pattern& pattern) {
    uint64_t wrong = 0;
    for (std::size_t at = 0; at < bytes; at += pattern.element_bytes) {
        if (std::memcmp(data + at, expected + at, pattern.element_bytes) == 0) continue;
        if (!pattern.rounded || !close(data + at, expected + at, pattern.dtype)) ++wrong;
    }
    return wrong;
}

// Calls do_part(at, from, bytes) for each part: `bytes` bytes of the buffer, at offset `at`, belong
// to the pattern at offset `from`.
template <typename DoPart>
void for_each_part(std::size_t buffer_bytes, const Pattern& pattern, std::size_t first,
                   DoPart&& do_part) {
    std::size_t from = first % period * pattern.element_bytes;
    for (std::size_t at = 0; at < buffer_bytes;) {
        const std::size_t bytes = std::min(pattern.bytes.size() - from, buffer_bytes - at);
        do_part(at, from, bytes);
        at += bytes;
        from = 0;
    }
}

}  // namespace

bool op_fits(const Collective& collective, tutti_op op, tutti_dtype dtype) {
    if (op == TUTTI_AVG && collective.is_prefix()) return false;
    return !is_bitwise(op) || !is_float(dtype);
}

Pattern input_pattern(tutti_dtype dtype, tutti_op op, int rank, int ranks) {
    return make_pattern(dtype, [&](uint64_t i) {
        return is_bitwise(op) ? mix(i, rank) : encode(dtype, number(dtype, op, i, rank, ranks));
    });
}

Pattern expected_pattern(tutti_dtype dtype, tutti_op op, int ranks) {
    Pattern pattern =
        make_pattern(dtype, [&](uint64_t i) { return expected_bits(dtype, op, i, ranks); });
    // sum × (1/n) and sum / n differ in the last bit; narrower types round that away.
    pattern.rounded = op == TUTTI_AVG && (dtype == TUTTI_FLOAT32 || dtype == TUTTI_FLOAT64);
    return pattern;
}

Pattern poison_pattern(tutti_dtype dtype) {
    const std::size_t element_bytes = tutti_dtype_size(dtype);
    return {.dtype = dtype,
            .element_bytes = element_bytes,
            .bytes = std::vector<std::byte>(period * element_bytes, poison)};
}

void fill(std::span<std::byte> buffer, const Pattern& pattern, std::size_t first) {
    for_each_part(buffer.size(), pattern, first, [&](auto at, auto from, auto bytes) {
        std::memcpy(&buffer[at], &pattern.bytes[from], bytes);
    });
}

uint64_t count_wrong(std::span<const std::byte> buffer, const Pattern& pattern, std::size_t first) {
    uint64_t wrong = 0;
    for_each_part(buffer.size(), pattern, first, [&](auto at, auto from, auto bytes) {
        if (std::memcmp(&buffer[at], &pattern.bytes[from], bytes) != 0)
            wrong += count_wrong_in_period(&buffer[at], &pattern.bytes[from], bytes, pattern);
    });
    return wrong;
}

uint64_t encode(tutti_dtype dtype, double value) {
    if (!is_float(dtype)) return static_cast<uint64_t>(static_cast<int64_t>(value));
    if (dtype == TUTTI_FLOAT32) return std::bit_cast<uint32_t>(static_cast<float>(value));
    if (dtype == TUTTI_FLOAT64) return std::bit_cast<uint64_t>(value);
    return encode_small(layout(dtype), value);
}

}  // namespace bench
