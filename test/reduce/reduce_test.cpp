// Every dtype × op × form on every instruction set, against the reference.
#include <array>

#include "reduce/reference.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

namespace {

// The place of the operands and the result: all places must give the same values.
struct Layout {
    bool stream = false;
    std::size_t shift_dst = 0;  // bytes off alignment
    std::size_t shift_a = 0;
    std::size_t shift_b = 0;
    enum { apart, is_a, is_b } alias = apart;  // the operand in whose memory the result is written
};

Layout random_layout(const Problem& problem, bool has_b, std::mt19937_64& random) {
    Layout layout;
    const uint64_t bits = random();
    layout.stream = (bits & 1) != 0;
    // Half of them aligned to elements, as callers have it; the rest anywhere.
    const std::size_t size = problem.bytes(problem.wr);
    layout.shift_dst = (bits & 4) != 0 ? (bits >> 8) % 64 : (bits >> 8) % 16 * size;
    layout.shift_a = (bits >> 16) % 64;
    layout.shift_b = (bits >> 24) % 64;
    if ((bits & 8) != 0 && problem.bytes(problem.wa) == size) layout.alias = Layout::is_a;
    if ((bits & 16) != 0 && has_b && problem.bytes(problem.wb) == size) {
        layout.alias = Layout::is_b;
    }
    return layout;
}

// A copy at the given distance from alignment, with a fence of known bytes behind it.
class Placed {
public:
    Placed(const std::byte* from, std::size_t bytes, std::size_t shift)
        : bytes_(bytes), shift_(shift), storage_(bytes + shift + 2 * fence, std::byte{0x5a}) {
        const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
        shift_ += (fence - address % fence) % fence;
        if (from != nullptr && bytes != 0) std::memcpy(data(), from, bytes);
    }
    std::byte* data() { return storage_.data() + shift_; }
    bool fence_intact() const {
        for (std::size_t i = 0; i < storage_.size(); ++i) {
            const bool inside = i >= shift_ && i < shift_ + bytes_;
            if (!inside && storage_[i] != std::byte{0x5a}) return false;
        }
        return true;
    }

private:
    static constexpr std::size_t fence = 64;
    std::size_t bytes_;
    std::size_t shift_;
    Buffer storage_;
};

// Runs one kernel in one layout; false, with the reason in `why`, if anything is not as expected.
bool agrees(const Problem& problem, ReduceFn kernel, const Layout& layout, const Buffer& a,
            const Buffer* b, const Buffer& expected, std::size_t count, bool exact,
            std::string& why) {
    Placed at_a(a.data(), a.size(), layout.shift_a);
    Placed at_b(b != nullptr ? b->data() : nullptr, b != nullptr ? b->size() : 0, layout.shift_b);
    Placed apart(nullptr, expected.size(), layout.shift_dst);
    Placed& dst = layout.alias == Layout::is_a ? at_a : layout.alias == Layout::is_b ? at_b : apart;
    kernel({.dst = dst.data(),
            .a = at_a.data(),
            .b = b != nullptr ? at_b.data() : nullptr,
            .count = count,
            .divisor = problem.divisor});
    if (!dst.fence_intact() || !at_a.fence_intact()) {
        why = "wrote outside of the result";
        return false;
    }
    const std::size_t at = first_difference(problem, dst.data(), expected.data(), count, exact);
    if (at == count) return true;
    const std::size_t size = problem.bytes(problem.wr);
    why = "element " + std::to_string(at) + " is " + hex(dst.data() + at * size, size) + ", not " +
          hex(expected.data() + at * size, size);
    return false;
}

std::vector<std::size_t> all_sizes() {
    std::vector<std::size_t> sizes;
    for (std::size_t count = 0; count <= 70; ++count) sizes.push_back(count);
    for (const std::size_t count : {127, 128, 129, 255, 256, 257, 1000, 4099}) {
        sizes.push_back(count);
    }
    return sizes;
}

void check(const Problem& problem, const Reducer& reducer, bool has_b, std::mt19937_64& random) {
    // max and min choose one of the operands' bits; so do copies.
    const bool exact = problem.op == Op::max || problem.op == Op::min || !is_float(problem.dtype);
    static const std::vector<std::size_t> sizes = all_sizes();
    for (const std::size_t count : sizes) {
        const Buffer a = random_elements(problem.dtype, problem.wide(problem.wa), count, random);
        const Buffer b = random_elements(problem.dtype, problem.wide(problem.wb), count, random);
        Buffer expected(count * problem.bytes(problem.wr));
        reference(problem, a.data(), has_b ? b.data() : nullptr, expected.data(), count);
        for (int turn = 0; turn < 2; ++turn) {
            const Layout layout = random_layout(problem, has_b, random);
            const ReduceFn kernel =
                has_b ? reducer.reduce(problem.wa, problem.wb, problem.wr, layout.stream)
                      : reducer.move(problem.wa, problem.wr, layout.stream);
            std::string why;
            if (agrees(problem, kernel, layout, a, has_b ? &b : nullptr, expected, count, exact,
                       why)) {
                continue;
            }
            INFO(problem.text() << ", " << count << " elements, on " << simd_target()
                                << (layout.stream ? ", streamed" : "") << ", dst shifted by "
                                << layout.shift_dst << ", alias " << layout.alias);
            FAIL(why);
        }
    }
}

constexpr int32_t divisors[] = {1, 2, 3, 7, 64, 1000, 100003, INT32_MAX};

}  // namespace

TEST_CASE("reducer: agrees with the reference for every dtype, op and form on every target") {
    const uint64_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        REQUIRE(simd_target() == target);
        for (const Dtype dtype : all_dtypes()) {
            for (const Op op : all_ops()) {
                const auto reducer = Reducer::make(dtype, op);
                if (!reducer) continue;
                for (int forms = 0; forms < 8; ++forms) {
                    Problem problem = problem_of(dtype, op, forms);
                    problem.divisor = divisors[random() % std::size(divisors)];
                    check(problem, *reducer, true, random);
                }
            }
        }
    }
}

TEST_CASE("reducer: converts between all forms as the reference does on every target") {
    const uint64_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    constexpr Width widths[] = {Width::raw, Width::partial, Width::final};
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (const Dtype dtype : all_dtypes()) {
            for (const Op op : {Op::sum, Op::max, Op::avg}) {
                const Reducer reducer = *Reducer::make(dtype, op);
                for (const Width from : widths) {
                    for (const Width to : widths) {
                        Problem problem{dtype, op};
                        problem.wa = from;
                        problem.wr = to;
                        problem.divisor = divisors[random() % std::size(divisors)];
                        check(problem, reducer, false, random);
                    }
                }
            }
        }
    }
}

TEST_CASE("reducer: gives the same bits on every target, NaNs included") {
    const uint64_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t count = 3001;
    const auto bits_of = [&](const Problem& problem, const Buffer& a, const Buffer& b) {
        Buffer result(count * problem.bytes(problem.wr));
        const Reducer reducer = *Reducer::make(problem.dtype, problem.op);
        const ReduceFn kernel = reducer.reduce(problem.wa, problem.wb, problem.wr, false);
        kernel({.dst = result.data(), .a = a.data(), .b = b.data(), .count = count, .divisor = 3});
        return result;
    };
    for (const Dtype dtype : all_dtypes()) {
        for (const Op op : all_ops()) {
            if (!Reducer::make(dtype, op)) continue;
            for (int forms = 0; forms < 8; ++forms) {
                Problem problem = problem_of(dtype, op, forms);
                const Buffer a = random_elements(dtype, problem.wide(problem.wa), count, random);
                const Buffer b = random_elements(dtype, problem.wide(problem.wb), count, random);
                const Buffer best = bits_of(problem, a, b);
                for (const std::string_view target : simd_targets()) {
                    const TargetScope scope(target);
                    const Buffer got = bits_of(problem, a, b);
                    INFO(problem.text() << " on " << target);
                    REQUIRE(first_difference(problem, got.data(), best.data(), count, true) ==
                            count);
                }
            }
        }
    }
}

TEST_CASE("reducer: moves elements of any size") {
    const uint64_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    for (const std::string_view target : simd_targets()) {
        const TargetScope scope(target);
        for (std::size_t size = 1; size <= max_mover_bytes; ++size) {
            const Reducer mover = Reducer::mover(size);
            REQUIRE(mover.bytes(Width::partial) == size);
            for (const std::size_t count : {0, 1, 2, 7, 33, 300}) {
                const Buffer a = random_elements(Dtype::uint8, false, count * size, random);
                for (int turn = 0; turn < 4; ++turn) {
                    Problem bytes{Dtype::uint8, Op::sum};
                    const Layout layout = random_layout(bytes, false, random);
                    const ReduceFn kernel = mover.move(Width::raw, Width::final, layout.stream);
                    Placed from(a.data(), a.size(), layout.shift_a);
                    Placed apart(nullptr, a.size(), layout.shift_dst);
                    Placed& dst = layout.alias == Layout::is_a ? from : apart;
                    kernel({.dst = dst.data(), .a = from.data(), .count = count});
                    INFO(count << " elements of " << size << " bytes on " << target);
                    REQUIRE(std::equal(a.begin(), a.end(), dst.data()));
                    REQUIRE((dst.fence_intact() && from.fence_intact()));
                }
            }
        }
    }
}
