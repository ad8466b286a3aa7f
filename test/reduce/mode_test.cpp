// The mode of floating point that the caller's thread is in changes no bit of a result: other
// ranks' threads are in another, and all ranks get the same.
#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <random>
#include <thread>

#include "reduce/reference.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

namespace {

// The register that has the thread's mode.
struct Mode {
    const char* name;
    uint64_t control;
};
#if defined(__x86_64__)
constexpr unsigned usual = 0x1f80;
constexpr Mode modes[] = {{"subnormals are zero", usual | 0x8040},
                          {"upward", usual | 0x4000},
                          {"towards zero", usual | 0x6000},
                          {"exceptions trap", 0}};

uint64_t control() {
    return _mm_getcsr() & 0xffc0;
}
void set_control(uint64_t bits) {
    _mm_setcsr(static_cast<unsigned>(bits));
}
#else
constexpr Mode modes[] = {{"subnormals are zero", 1 << 24},
                          {"one NaN for all", 1 << 25},
                          {"upward", 1 << 22},
                          {"towards zero", 3 << 22}};

uint64_t control() {
    uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
void set_control(uint64_t bits) {
    asm volatile("msr fpcr, %0" : : "r"(bits));
}
#endif

// Random bits, and with them numbers whose sums and products are subnormal.
Buffer awkward_elements(const Problem& problem, Width width, std::size_t count,
                        std::mt19937_64& random) {
    const bool wide = problem.wide(width);
    Buffer elements = random_elements(problem.dtype, wide, count, random);
    if (!wide && problem.dtype != Dtype::float32) return elements;
    constexpr uint32_t exponents[] = {0, 1, 2, 60, 110, 126, 127, 128, 250, 252};
    for (std::size_t i = 0; i < count; i += 1 + random() % 2) {
        const uint32_t exponent = exponents[random() % std::size(exponents)] << 23;
        const uint32_t bits = exponent | (static_cast<uint32_t>(random()) & 0x807fffff);
        std::memcpy(elements.data() + 4 * i, &bits, 4);
    }
    return elements;
}

// In a thread of its own: the mode belongs to the thread.
void in_mode(const Mode& mode, const ReduceFn& kernel, const ReduceArgs& args) {
    uint64_t after = 0;
    std::thread([&] {
        set_control(mode.control);
        kernel(args);
        after = control();
    }).join();
    REQUIRE(after == mode.control);
}

void check_modes(const Problem& problem, const ReduceFn& kernel, std::mt19937_64& random) {
    constexpr std::size_t count = 517;
    const Buffer a = awkward_elements(problem, problem.wa, count, random);
    const Buffer b = awkward_elements(problem, problem.wb, count, random);
    Buffer expected(count * problem.bytes(problem.wr)), got(expected.size());
    ReduceArgs args{
        .dst = expected.data(), .a = a.data(), .b = b.data(), .count = count, .divisor = 3};
    kernel(args);
    args.dst = got.data();
    for (const Mode& mode : modes) {
        in_mode(mode, kernel, args);
        INFO(problem.text() << " by " << simd_target() << ", " << mode.name);
        REQUIRE(got == expected);
    }
}

}  // namespace

TEST_CASE("modes of floating point: no kernel's results depend on the caller's") {
    const uint64_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (const Dtype dtype : all_dtypes()) {
            for (const Op op : all_ops()) {
                const auto reducer = Reducer::make(dtype, op);
                if (!reducer || !is_float(dtype)) continue;
                for (int forms = 0; forms < 8; ++forms) {
                    Problem problem = problem_of(dtype, op, forms);
                    check_modes(problem, reducer->reduce(problem.wa, problem.wb, problem.wr, false),
                                random);
                    if (problem.wa == problem.wr || problem.wb == Width::partial) continue;
                    check_modes(problem, reducer->move(problem.wa, problem.wr, false), random);
                }
            }
        }
    }
}
#endif
