#include "reduce/reference.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace tutti::test {

uint32_t SmallFloat::first_special() const {
    const uint32_t all_ones = sign_bit() - 1;
    return infinity ? all_ones - ((1u << mantissa_bits) - 1) : all_ones;
}

bool SmallFloat::is_nan(uint32_t code) const {
    const uint32_t magnitude = code & (sign_bit() - 1);
    return infinity ? magnitude > first_special() : magnitude == first_special();
}

double SmallFloat::decode(uint32_t code) const {
    const uint32_t magnitude = code & (sign_bit() - 1);
    const double sign = (code & sign_bit()) != 0 ? -1 : 1;
    if (is_nan(code)) return std::numeric_limits<double>::quiet_NaN();
    if (infinity && magnitude == first_special()) return sign * HUGE_VAL;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const int fraction = static_cast<int>(magnitude & ((1u << mantissa_bits) - 1));
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
    return sign * std::ldexp(fraction + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

uint32_t SmallFloat::encode(double value) const {
    const uint32_t sign = std::signbit(value) ? sign_bit() : 0;
    if (std::isnan(value)) return sign | (sign_bit() - 1);
    const double magnitude = std::fabs(value);
    // The first special code stands for the number it would be if it were one.
    SmallFloat endless = *this;
    endless.exponent_bits = exponent_bits + 1;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int wider_bias = (1 << exponent_bits) - 1;
    const auto number = [&](uint32_t code) {
        if (code >> mantissa_bits == 0) return decode(code);
        const auto shifted = static_cast<uint32_t>(wider_bias - bias) << mantissa_bits;
        return endless.decode(code + shifted);
    };
    uint32_t low = 0;
    uint32_t high = first_special();
    if (magnitude >= number(high)) return sign | high;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        (number(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - number(low);
    const double above = number(high) - magnitude;
    const bool up = above < below || (above == below && low % 2 == 1);
    return sign | (up ? high : low);
}

const SmallFloat* small_float(Dtype dtype) {
    static constexpr SmallFloat float16{5, 10, true}, bfloat16{8, 7, true}, e4m3{4, 3, false},
        e5m2{5, 2, true};
    switch (dtype) {
        case Dtype::float16:
            return &float16;
        case Dtype::bfloat16:
            return &bfloat16;
        case Dtype::float8_e4m3:
            return &e4m3;
        case Dtype::float8_e5m2:
            return &e5m2;
        default:
            return nullptr;
    }
}

std::vector<Dtype> all_dtypes() {
    std::vector<Dtype> list;
    for (int i = 0; i < dtype_count; ++i) list.push_back(static_cast<Dtype>(i));
    return list;
}

std::vector<Op> all_ops() {
    std::vector<Op> list;
    for (int i = 0; i < op_count; ++i) list.push_back(static_cast<Op>(i));
    return list;
}

bool is_bitwise(Op op) {
    return op == Op::band || op == Op::bor || op == Op::bxor;
}

bool Problem::widened() const {
    return small_float(dtype) != nullptr && op != Op::max && op != Op::min;
}

std::size_t Problem::bytes(Width width) const {
    return wide(width) ? 4 : dtype_bytes(dtype);
}

std::string Problem::text() const {
    static constexpr std::string_view names[] = {"raw", "partial", "final"};
    const auto name = [](Width width) { return names[static_cast<std::size_t>(width)]; };
    return fmt::format("{} {}, {} and {} to {}, divisor {}", dtype_name(dtype), op_name(op),
                       name(wa), name(wb), name(wr), divisor);
}

namespace {

template <class T>
T load(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

template <class T>
void save(std::byte* p, T value) {
    std::memcpy(p, &value, sizeof value);
}

template <class T>
T combine_ints(Op op, T a, T b) {
    // Unsigned arithmetic is modulo 2^64, of which every T keeps the low end.
    using Wide = uint64_t;
    switch (op) {
        case Op::max:
            return a > b ? a : b;
        case Op::min:
            return a < b ? a : b;
        case Op::prod:
            return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
        case Op::band:
            return static_cast<T>(a & b);
        case Op::bor:
            return static_cast<T>(a | b);
        case Op::bxor:
            return static_cast<T>(a ^ b);
        default:
            return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    }
}

template <class T>
void reference_ints(const Problem& problem, const std::byte* a, const std::byte* b,
                    std::byte* dst) {
    T value = load<T>(a);
    if (b != nullptr) value = combine_ints(problem.op, value, load<T>(b));
    const bool divide = problem.op == Op::avg && problem.wr == Width::final &&
                        (b != nullptr || problem.wa == Width::partial);
    using Long = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    if (divide) value = static_cast<T>(Long{value} / static_cast<Long>(problem.divisor));
    save(dst, value);
}

// -0 below +0, NaN better than any number, a's NaN better than b's.
bool takes_b(Op op, double a, double b) {
    if (std::isnan(a)) return false;
    if (std::isnan(b)) return true;
    const bool a_first = a < b || (a == b && std::signbit(a) && !std::signbit(b));
    const bool b_first = b < a || (a == b && std::signbit(b) && !std::signbit(a));
    return op == Op::max ? a_first : b_first;
}

void store_float(const Problem& problem, double value, std::byte* p) {
    const bool wide = problem.wide(problem.wr);
    if (problem.dtype == Dtype::float64) {
        save(p, value);
    } else if (wide || problem.dtype == Dtype::float32) {
        save(p, static_cast<float>(value));
    } else {
        const SmallFloat& format = *small_float(problem.dtype);
        const uint32_t code = format.encode(value);
        std::memcpy(p, &code, static_cast<std::size_t>(format.bytes()));
    }
}

void reference_floats(const Problem& problem, const std::byte* a, const std::byte* b,
                      std::byte* dst) {
    const double x = load_float(problem.dtype, problem.wide(problem.wa), a);
    double value = x;
    if (b != nullptr) {
        const double y = load_float(problem.dtype, problem.wide(problem.wb), b);
        if (problem.op == Op::max || problem.op == Op::min) {
            std::memcpy(dst, takes_b(problem.op, x, y) ? b : a, problem.bytes(problem.wr));
            return;
        }
        value = problem.op == Op::prod ? x * y : x + y;
    }
    // Rounding a double to float is harmless after one float operation: it has the bits.
    const bool in_float = problem.dtype != Dtype::float64;
    if (in_float) value = static_cast<float>(value);
    const bool divide = problem.op == Op::avg && problem.wr == Width::final &&
                        (b != nullptr || problem.wa == Width::partial);
    // The divisor too is a float there: exact up to 2^24.
    const double exact = problem.divisor;
    if (divide) value /= in_float ? double{static_cast<float>(exact)} : exact;
    if (in_float) value = static_cast<float>(value);
    store_float(problem, value, dst);
}

void reference_element(const Problem& problem, const std::byte* a, const std::byte* b,
                       std::byte* dst) {
    switch (problem.dtype) {
        case Dtype::int8:
            return reference_ints<int8_t>(problem, a, b, dst);
        case Dtype::uint8:
            return reference_ints<uint8_t>(problem, a, b, dst);
        case Dtype::int16:
            return reference_ints<int16_t>(problem, a, b, dst);
        case Dtype::uint16:
            return reference_ints<uint16_t>(problem, a, b, dst);
        case Dtype::int32:
            return reference_ints<int32_t>(problem, a, b, dst);
        case Dtype::uint32:
            return reference_ints<uint32_t>(problem, a, b, dst);
        case Dtype::int64:
            return reference_ints<int64_t>(problem, a, b, dst);
        case Dtype::uint64:
            return reference_ints<uint64_t>(problem, a, b, dst);
        default:
            return reference_floats(problem, a, b, dst);
    }
}

double special_value(std::mt19937_64& random) {
    static const double values[] = {0.0,    -0.0,   HUGE_VAL, -HUGE_VAL, std::nan(""), 1e-45,
                                    -1e-40, 6e-8,   6.1e-5,   -65504,    65520,        448,
                                    -464,   3.4e38, 57344,    -61440,    1e-310,       1.7e308,
                                    1.0,    -1.0,   0.015625, 2.0e-3,    3.39e38,      1e-38};
    return values[random() % std::size(values)];
}

}  // namespace

double load_float(Dtype dtype, bool wide, const std::byte* p) {
    if (dtype == Dtype::float64) return load<double>(p);
    if (wide || dtype == Dtype::float32) return static_cast<double>(load<float>(p));
    const SmallFloat& format = *small_float(dtype);
    uint32_t code = 0;
    std::memcpy(&code, p, static_cast<std::size_t>(format.bytes()));
    return format.decode(code);
}

bool element_is_nan(Dtype dtype, bool wide, const std::byte* p) {
    return is_float(dtype) && std::isnan(load_float(dtype, wide, p));
}

void reference(const Problem& problem, const std::byte* a, const std::byte* b, std::byte* dst,
               std::size_t count) {
    const bool copies =
        b == nullptr && problem.wide(problem.wa) == problem.wide(problem.wr) &&
        !(problem.op == Op::avg && problem.wa == Width::partial && problem.wr == Width::final);
    if (copies) {
        if (count == 0) return;  // null pointers, perhaps
        std::memcpy(dst, a, count * problem.bytes(problem.wr));
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::byte* from_b = b == nullptr ? nullptr : b + i * problem.bytes(problem.wb);
        reference_element(problem, a + i * problem.bytes(problem.wa), from_b,
                          dst + i * problem.bytes(problem.wr));
    }
}

Buffer random_elements(Dtype dtype, bool wide, std::size_t count, std::mt19937_64& random) {
    const std::size_t size = wide ? 4 : dtype_bytes(dtype);
    Buffer buffer(count * size);
    std::normal_distribution<double> ordinary(0.0, 3.0);
    Problem shape{dtype, Op::sum};
    shape.wr = wide ? Width::partial : Width::final;
    for (std::size_t i = 0; i < count; ++i) {
        std::byte* p = buffer.data() + i * size;
        const uint64_t bits = random();
        const uint64_t kind = bits >> 61;
        if (!is_float(dtype)) {
            const uint64_t value = kind < 4 ? bits % 17 : bits * 0x9e3779b97f4a7c15u;
            std::memcpy(p, &value, size);
        } else if (kind < 5) {
            store_float(shape, ordinary(random), p);
        } else if (kind < 7) {
            std::memcpy(p, &bits, size);
        } else {
            store_float(shape, special_value(random), p);
        }
    }
    return buffer;
}

std::size_t first_difference(const Problem& problem, const std::byte* got,
                             const std::byte* expected, std::size_t count, bool exact) {
    const std::size_t size = problem.bytes(problem.wr);
    if (count == 0 || std::memcmp(got, expected, count * size) == 0) return count;
    const bool wide = problem.wide(problem.wr);
    for (std::size_t i = 0; i < count; ++i) {
        const std::byte* x = got + i * size;
        const std::byte* y = expected + i * size;
        if (std::memcmp(x, y, size) == 0) continue;
        if (exact || !element_is_nan(problem.dtype, wide, x)) return i;
        if (!element_is_nan(problem.dtype, wide, y)) return i;
    }
    return count;
}

std::string hex(const std::byte* p, std::size_t bytes) {
    std::string text;
    for (std::size_t i = bytes; i-- > 0;) {
        fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned>(p[i]));
    }
    return text;
}

}  // namespace tutti::test
