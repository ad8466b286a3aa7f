// Every processor's kernels give the same bits: those that are written down here. Ranks of one job
// may run on different processors.
#include <random>

#include "base/hash.h"
#include "reduce/reference.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t elements_each = 1031;

struct Digest {
    Dtype dtype;
    uint64_t value;
};
constexpr Digest digests[] = {
    {Dtype::int8, 0x2930df65766c853},         {Dtype::uint8, 0xf20e4298c65634ee},
    {Dtype::int16, 0xd8e07fbf9ddb8453},       {Dtype::uint16, 0x853fea8fd93fc151},
    {Dtype::int32, 0xdbb7d67159c7b7c5},       {Dtype::uint32, 0x83946b41a487a156},
    {Dtype::int64, 0x773ba366707215cc},       {Dtype::uint64, 0x12304c8eaad128e9},
    {Dtype::float16, 0x4b2df2c6c8672b02},     {Dtype::bfloat16, 0x5c940b6af0eafb0e},
    {Dtype::float32, 0x9556d5540ac605ac},     {Dtype::float64, 0x4b84d9206b2ab2c3},
    {Dtype::float8_e4m3, 0x61a846b9f250e081}, {Dtype::float8_e5m2, 0xf207205ab085d030},
};

// Random bits; two of three floats have an exponent near that of 1, or an extreme one. It calls no
// function of the C library, because the last bit of a logarithm differs between processors.
template <class Bits, int kMantissaBits>
void put_floats(Buffer& elements, std::mt19937_64& random) {
    constexpr int exponent_bits = 8 * static_cast<int>(sizeof(Bits)) - 1 - kMantissaBits;
    constexpr Bits one = (Bits{1} << (exponent_bits - 1)) - 1, last = 2 * one + 1;
    constexpr Bits fraction = (Bits{1} << kMantissaBits) - 1;
    constexpr Bits extremes[] = {0, 1, 2, one / 2, last - 2, last - 1, last};
    for (std::size_t i = 0; i < elements.size(); i += sizeof(Bits)) {
        const uint64_t draw = random();
        Bits bits = static_cast<Bits>(random()), exponent = bits >> kMantissaBits & last;
        if (draw % 3 == 1) exponent = one - 4 + static_cast<Bits>(draw >> 8) % 8;
        if (draw % 3 == 2) exponent = extremes[(draw >> 8) % std::size(extremes)];
        if (draw % 3 == 2 && (draw >> 16) % 2 == 0) bits &= ~fraction;
        bits = (bits & ~(last << kMantissaBits)) | exponent << kMantissaBits;
        std::memcpy(elements.data() + i, &bits, sizeof bits);
    }
}

Buffer elements_of(const Problem& problem, Width width, std::mt19937_64& random) {
    Buffer elements(elements_each * problem.bytes(width));
    if (problem.dtype == Dtype::float64) {
        put_floats<uint64_t, 52>(elements, random);
    } else if (problem.dtype == Dtype::float32 || problem.wide(width)) {
        put_floats<uint32_t, 23>(elements, random);
    } else {
        for (std::byte& byte : elements) byte = static_cast<std::byte>(random() >> 56);
    }
    return elements;
}

// The results of all operators in all forms.
uint64_t digest_of(Dtype dtype) {
    std::mt19937_64 random(static_cast<uint64_t>(dtype));
    uint64_t hash = hash_basis;
    const auto add = [&](const Problem& problem, const ReduceFn& kernel) {
        const Buffer a = elements_of(problem, problem.wa, random);
        const Buffer b = elements_of(problem, problem.wb, random);
        Buffer out(elements_each * problem.bytes(problem.wr));
        kernel({.dst = out.data(),
                .a = a.data(),
                .b = b.data(),
                .count = elements_each,
                .divisor = 3});
        for (const std::byte byte : out) hash = mix_hash(hash, static_cast<uint64_t>(byte));
    };
    for (const Op op : all_ops()) {
        const auto reducer = Reducer::make(dtype, op);
        if (!reducer) continue;
        for (int forms = 0; forms < 8; ++forms) {
            const Problem problem = problem_of(dtype, op, forms);
            add(problem, reducer->reduce(problem.wa, problem.wb, problem.wr, false));
            add(problem, reducer->reduce(problem.wa, problem.wb, problem.wr, true));
            if (problem.wa == problem.wr || problem.wb == Width::partial) continue;
            add(problem, reducer->move(problem.wa, problem.wr, false));
        }
    }
    return hash;
}

}  // namespace

TEST_CASE("bits: the kernels' results are the same on every processor") {
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (const auto& [dtype, wanted] : digests) {
            const uint64_t got = digest_of(dtype);
            INFO(dtype_name(dtype) << " by " << target << ": 0x" << std::hex << got);
            CHECK(got == wanted);
        }
    }
}
