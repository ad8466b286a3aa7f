// Tests the reductions' contract on single values, which are written out, and the error messages.
#include <cmath>
#include <limits>

#include "reduce/reference.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

namespace {

template <class T>
T reduce_one(Dtype dtype, Op op, T a, T b, int32_t divisor = 1) {
    T result{};
    const Reducer reducer = *Reducer::make(dtype, op);
    reducer.reduce(Width::raw, Width::raw, Width::final,
                   false)({.dst = &result, .a = &a, .b = &b, .count = 1, .divisor = divisor});
    return result;
}

uint32_t bits(float value) {
    return std::bit_cast<uint32_t>(value);
}

uint32_t round_to(Dtype dtype, float value) {
    uint32_t code = 0;
    const Reducer reducer = *Reducer::make(dtype, Op::sum);
    reducer.move(Width::partial, Width::final, false)({.dst = &code, .a = &value, .count = 1});
    return code;
}

std::vector<uint32_t> round_all(Dtype dtype, const std::vector<float>& values) {
    const std::size_t size = dtype_bytes(dtype);
    Buffer codes(values.size() * size);
    const Reducer reducer = *Reducer::make(dtype, Op::sum);
    reducer.move(Width::partial, Width::final,
                 false)({.dst = codes.data(), .a = values.data(), .count = values.size()});
    std::vector<uint32_t> result(values.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
        std::memcpy(&result[i], codes.data() + i * size, size);
    }
    return result;
}

constexpr Dtype small_floats[] = {Dtype::float16, Dtype::bfloat16, Dtype::float8_e4m3,
                                  Dtype::float8_e5m2};

std::string message_of(int32_t dtype, int32_t op) {
    const auto reducer = Reducer::make(static_cast<Dtype>(dtype), static_cast<Op>(op));
    REQUIRE(!reducer);
    REQUIRE(reducer.error().code == Code::invalid);
    return error_text(reducer.error());
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("small floats: every code survives the way to fp32 and back") {
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (const Dtype dtype : small_floats) {
            const SmallFloat& format = *small_float(dtype);
            const std::size_t count = 2 * format.sign_bit();
            const std::size_t size = dtype_bytes(dtype);
            Buffer codes(count * size);
            for (std::size_t i = 0; i < count; ++i) std::memcpy(codes.data() + i * size, &i, size);
            std::vector<float> wide(count);
            const Reducer reducer = *Reducer::make(dtype, Op::sum);
            reducer.move(Width::raw, Width::partial,
                         false)({.dst = wide.data(), .a = codes.data(), .count = count});
            const std::vector<uint32_t> back = round_all(dtype, wide);
            std::size_t wrong = count;
            for (std::size_t i = 0; i < count; ++i) {
                const auto code = static_cast<uint32_t>(i);
                const bool nan = format.is_nan(code);
                // A NaN keeps sign and payload and becomes quiet.
                const uint32_t quiet =
                    nan && format.infinity ? 1u << (format.mantissa_bits - 1) : 0;
                const double value = format.decode(code);
                const bool value_ok =
                    nan ? std::isnan(wide[i])
                        : double{wide[i]} == value && std::signbit(wide[i]) == std::signbit(value);
                if (!value_ok || back[i] != (code | quiet)) wrong = std::min(wrong, i);
            }
            INFO(dtype_name(dtype) << " on " << target << ", code " << wrong);
            REQUIRE(wrong == count);
        }
    }
}

TEST_CASE("small floats: round to nearest even around every tie") {
    for (const Dtype dtype : small_floats) {
        const SmallFloat& format = *small_float(dtype);
        std::vector<float> values;
        for (uint32_t code = 0; code + 1 < format.first_special(); ++code) {
            // Between bfloat16's smallest subnormals float cannot express anything in between.
            const auto tie =
                static_cast<float>((format.decode(code) + format.decode(code + 1)) / 2);
            for (const float value :
                 {std::nextafterf(tie, 0), tie, std::nextafterf(tie, INFINITY)}) {
                values.push_back(value);
                values.push_back(-value);
            }
        }
        std::vector<uint32_t> expected;
        for (const float value : values) expected.push_back(format.encode(double{value}));
        for (const std::string_view target : simd_targets()) {
            const TargetScope scope(target);
            const std::vector<uint32_t> got = round_all(dtype, values);
            std::size_t wrong = 0;
            while (wrong < got.size() && got[wrong] == expected[wrong]) ++wrong;
            INFO(dtype_name(dtype)
                 << " on " << target << ", value " << (wrong < got.size() ? values[wrong] : 0));
            REQUIRE(wrong == got.size());
        }
    }
}

TEST_CASE("small floats: overflow becomes infinity, and NaN where there is none") {
    const float infinity = std::numeric_limits<float>::infinity();
    const struct {
        Dtype dtype;
        float value;
        uint32_t code;
    } cases[] = {
        {Dtype::float16, 65504.0f, 0x7bff},        {Dtype::float16, 65519.996f, 0x7bff},
        {Dtype::float16, 65520.0f, 0x7c00},        {Dtype::float16, -1e30f, 0xfc00},
        {Dtype::float16, infinity, 0x7c00},        {Dtype::float16, 5.9604645e-8f, 0x0001},
        {Dtype::float16, 2.9802322e-8f, 0x0000},   {Dtype::float16, 2.9802326e-8f, 0x0001},
        {Dtype::bfloat16, 3.3895314e38f, 0x7f7f},  {Dtype::bfloat16, 3.4028235e38f, 0x7f80},
        {Dtype::bfloat16, -infinity, 0xff80},      {Dtype::bfloat16, 1.00390625f, 0x3f80},
        {Dtype::bfloat16, 1.01171875f, 0x3f82},    {Dtype::bfloat16, 1e-45f, 0x0000},
        {Dtype::float8_e4m3, 448.0f, 0x7e},        {Dtype::float8_e4m3, 464.0f, 0x7e},
        {Dtype::float8_e4m3, 464.00003f, 0x7f},    {Dtype::float8_e4m3, -480.0f, 0xff},
        {Dtype::float8_e4m3, infinity, 0x7f},      {Dtype::float8_e4m3, -infinity, 0xff},
        {Dtype::float8_e4m3, 0.001953125f, 0x01},  {Dtype::float8_e4m3, 0.0009765625f, 0x00},
        {Dtype::float8_e5m2, 57344.0f, 0x7b},      {Dtype::float8_e5m2, 61439.996f, 0x7b},
        {Dtype::float8_e5m2, 61440.0f, 0x7c},      {Dtype::float8_e5m2, -infinity, 0xfc},
        {Dtype::float8_e5m2, 1.5258789e-5f, 0x01},
    };
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (const auto& one : cases) {
            INFO(dtype_name(one.dtype) << " of " << one.value << " on " << target);
            CHECK(round_to(one.dtype, one.value) == one.code);
        }
    }
}

TEST_CASE("small floats: a chain of partial sums rounds once") {
    // 256 ones and a half: in bfloat16 the sum would stick at 256 from the first addition on.
    constexpr uint16_t one = 0x3f80, big = 0x4380;
    const Reducer reducer = *Reducer::make(Dtype::bfloat16, Op::sum);
    REQUIRE(reducer.bytes(Width::partial) == 4);
    float partial = 0;
    reducer.reduce(Width::raw, Width::raw, Width::partial,
                   false)({.dst = &partial, .a = &big, .b = &one, .count = 1});
    REQUIRE(partial == 257.0f);
    reducer.reduce(Width::raw, Width::partial, Width::partial,
                   false)({.dst = &partial, .a = &one, .b = &partial, .count = 1});
    uint16_t result = 0;
    reducer.reduce(Width::partial, Width::raw, Width::final,
                   false)({.dst = &result, .a = &partial, .b = &one, .count = 1});
    REQUIRE(small_float(Dtype::bfloat16)->decode(result) == 260.0);  // 259 is between 258 and 260
}

TEST_CASE("max and min: order zeros by sign and hand NaNs on, whichever comes first") {
    const float nan_a = std::bit_cast<float>(0x7fc00123u);
    const float nan_b = std::bit_cast<float>(0xffa00456u);  // signalling, and negative
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        INFO(target);
        const auto max = [](float a, float b) {
            return bits(reduce_one(Dtype::float32, Op::max, a, b));
        };
        const auto min = [](float a, float b) {
            return bits(reduce_one(Dtype::float32, Op::min, a, b));
        };
        CHECK(max(0.0f, -0.0f) == bits(0.0f));
        CHECK(max(-0.0f, 0.0f) == bits(0.0f));
        CHECK(min(0.0f, -0.0f) == bits(-0.0f));
        CHECK(min(-0.0f, 0.0f) == bits(-0.0f));
        CHECK(max(-1.0f, -2.0f) == bits(-1.0f));
        CHECK(min(-1.0f, -2.0f) == bits(-2.0f));
        CHECK(max(nan_b, INFINITY) == bits(nan_b));
        CHECK(max(-INFINITY, nan_b) == bits(nan_b));
        CHECK(min(nan_a, -INFINITY) == bits(nan_a));
        CHECK(min(1.0f, nan_a) == bits(nan_a));
        CHECK(max(nan_a, nan_b) == bits(nan_a));
        CHECK(max(nan_b, nan_a) == bits(nan_b));
        CHECK(min(nan_b, nan_a) == bits(nan_b));
        CHECK(reduce_one<uint8_t>(Dtype::float8_e4m3, Op::max, 0xff, 0x7e) == 0xff);
        CHECK(reduce_one<uint8_t>(Dtype::float8_e4m3, Op::min, 0x80, 0x00) == 0x80);
        CHECK(reduce_one<uint16_t>(Dtype::float16, Op::max, 0x7c00, 0xfe01) == 0xfe01);
        CHECK(reduce_one<uint16_t>(Dtype::bfloat16, Op::min, 0xff80, 0x0001) == 0xff80);
    }
}

TEST_CASE("sum and prod: keep a's NaN of two in every loop, at every place") {
    constexpr std::size_t most = 150;
    const std::vector<float> a(most, std::bit_cast<float>(0x7f800111u));
    const std::vector<float> b(most, std::bit_cast<float>(0xffc00222u));
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (const Op op : {Op::sum, Op::prod}) {
            for (std::size_t count = 1; count <= most; ++count) {
                for (const bool stream : {false, true}) {
                    std::vector<float> result(count);
                    Reducer::make(Dtype::float32, op)
                        ->reduce(Width::raw, Width::partial, Width::final, stream)(
                            {.dst = result.data(), .a = a.data(), .b = b.data(), .count = count});
                    std::size_t right = 0;
                    for (const float value : result) right += bits(value) == 0x7fc00111u;
                    INFO(op_name(op) << " of " << count << " on " << target);
                    REQUIRE(right == count);
                }
            }
        }
    }
}

TEST_CASE("integers: wrap, and average toward zero") {
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        INFO(target);
        CHECK(reduce_one<int8_t>(Dtype::int8, Op::sum, 127, 1) == -128);
        CHECK(reduce_one<int8_t>(Dtype::int8, Op::prod, 100, 3) == 44);
        CHECK(reduce_one<uint8_t>(Dtype::uint8, Op::prod, 255, 255) == 1);
        CHECK(reduce_one<int64_t>(Dtype::int64, Op::prod, INT64_MAX, INT64_MAX) == 1);
        CHECK(reduce_one<uint32_t>(Dtype::uint32, Op::max, 1, 0x80000000u) == 0x80000000u);
        CHECK(reduce_one<uint64_t>(Dtype::uint64, Op::min, 1, UINT64_MAX) == 1);
        CHECK(reduce_one<int32_t>(Dtype::int32, Op::avg, -3, -4, 2) == -3);
        CHECK(reduce_one<int16_t>(Dtype::int16, Op::avg, -3, 0, 2) == -1);
        CHECK(reduce_one<int8_t>(Dtype::int8, Op::avg, 127, 1, 4) == -32);
        CHECK(reduce_one<uint32_t>(Dtype::uint32, Op::avg, UINT32_MAX, 0, 2) == 0x7fffffffu);
        CHECK(reduce_one<int32_t>(Dtype::int32, Op::avg, INT32_MIN, 0, 1) == INT32_MIN);
        CHECK(reduce_one<int64_t>(Dtype::int64, Op::avg, INT64_MIN, 1, 3) == (INT64_MIN + 1) / 3);
        CHECK(reduce_one<uint64_t>(Dtype::uint64, Op::avg, UINT64_MAX, 0, 3) == UINT64_MAX / 3);
    }
}

template <class T>
void check_quotients(Dtype dtype, const std::vector<T>& numbers, int32_t divisor) {
    std::vector<T> got(numbers.size());
    const Reducer reducer = *Reducer::make(dtype, Op::avg);
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        reducer.move(Width::partial, Width::final, false)(
            {.dst = got.data(), .a = numbers.data(), .count = numbers.size(), .divisor = divisor});
        std::size_t at = 0;
        while (at < got.size() && got[at] == static_cast<T>(__int128{numbers[at]} / divisor)) ++at;
        INFO(dtype_name(dtype) << " on " << target << ", " << at << ". number by " << divisor);
        REQUIRE(at == got.size());
    }
}

// All numbers of up to 16 bits; of longer ones those around multiples of the divisor and the ends.
template <class T>
void check_quotients(Dtype dtype, int32_t divisor) {
    using Limits = std::numeric_limits<T>;
    std::vector<T> numbers;
    if constexpr (sizeof(T) <= 2) {
        for (int32_t i = Limits::min(); i <= Limits::max(); ++i)
            numbers.push_back(static_cast<T>(i));
    } else {
        using Bits = std::make_unsigned_t<T>;
        const auto by = static_cast<Bits>(divisor);
        for (int shift = 0; shift < Limits::digits; shift += 3) {
            const Bits multiple = (Bits(Limits::max()) >> shift) / by * by;
            for (const Bits near : {multiple - 1, multiple, multiple + 1, Bits(0) - multiple})
                numbers.push_back(static_cast<T>(near));
        }
        numbers.insert(numbers.end(), {Limits::min(), Limits::max(), T(0), T(1), T(-1)});
    }
    check_quotients(dtype, numbers, divisor);
}

TEST_CASE("integers: averages are those of a division, by every divisor") {
    std::vector<int32_t> divisors;
    for (int32_t small = 1; small <= 260; ++small) divisors.push_back(small);
    for (int bits = 9; bits <= 30; ++bits) {
        for (const int32_t near : {-1, 0, 1}) divisors.push_back((1 << bits) + near);
    }
    divisors.push_back(std::numeric_limits<int32_t>::max());
    for (const int32_t divisor : divisors) {
        check_quotients<int8_t>(Dtype::int8, divisor);
        check_quotients<uint8_t>(Dtype::uint8, divisor);
        check_quotients<int16_t>(Dtype::int16, divisor);
        check_quotients<uint16_t>(Dtype::uint16, divisor);
        check_quotients<int32_t>(Dtype::int32, divisor);
        check_quotients<uint32_t>(Dtype::uint32, divisor);
        check_quotients<int64_t>(Dtype::int64, divisor);
        check_quotients<uint64_t>(Dtype::uint64, divisor);
    }
}

TEST_CASE("reducer: says how wide each form is") {
    CHECK(Reducer::make(Dtype::float8_e4m3, Op::avg)->bytes(Width::partial) == 4);
    CHECK(Reducer::make(Dtype::float16, Op::prod)->bytes(Width::partial) == 4);
    CHECK(Reducer::make(Dtype::float16, Op::prod)->bytes(Width::final) == 2);
    CHECK(Reducer::make(Dtype::float16, Op::max)->bytes(Width::partial) == 2);
    CHECK(Reducer::make(Dtype::float64, Op::sum)->bytes(Width::partial) == 8);
    CHECK(Reducer::make(Dtype::int16, Op::avg)->bytes(Width::partial) == 2);
}

TEST_CASE("reducer: names the dtype and the operator when they do not go together") {
    for (const Dtype dtype : all_dtypes()) {
        for (const Op op : all_ops()) {
            const bool refused = is_float(dtype) && is_bitwise(op);
            INFO(dtype_name(dtype) << " " << op_name(op));
            REQUIRE(Reducer::make(dtype, op).has_value() == !refused);
            if (!refused) continue;
            const std::string text =
                message_of(static_cast<int32_t>(dtype), static_cast<int32_t>(op));
            CHECK(has(text, dtype_name(dtype)));
            CHECK(has(text, op_name(op)));
            CHECK(has(text, "integers"));
        }
    }
}

TEST_CASE("reducer: says which dtypes and operators there are when given another") {
    for (const int32_t value : {-1, dtype_count, INT32_MAX, INT32_MIN}) {
        const std::string text = message_of(value, 0);
        CHECK(has(text, "dtype " + std::to_string(value)));
        CHECK(has(text, "13 float8_e5m2"));
    }
    for (const int32_t value : {-1, op_count, INT32_MAX}) {
        const std::string text = message_of(0, value);
        CHECK(has(text, "operator " + std::to_string(value)));
        CHECK(has(text, "bxor"));
    }
    CHECK(dtype_name(static_cast<Dtype>(99)) == "unknown");
    CHECK(op_name(static_cast<Op>(-5)) == "unknown");
    CHECK(dtype_bytes(static_cast<Dtype>(-1)) == 0);
}

TEST_CASE("simd: the best target is selected unless another is asked for") {
    const auto targets = simd_targets();
    REQUIRE(!targets.empty());
    select_simd_target("");
    CHECK(simd_target() == targets.front());
    CHECK(!select_simd_target("AVX1024"));
    CHECK(simd_target() == targets.front());
    {
        const TargetScope scope(targets.back());
        CHECK(scope.known);
        CHECK(simd_target() == targets.back());
    }
    CHECK(simd_target() == targets.front());
}
