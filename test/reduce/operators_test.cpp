// Operators of the program's own: the table of handles, and kernels that call back.
#include "reduce/operators.h"

#include <vector>

#include "support/catch.h"

using namespace tutti;

namespace {

// Pairs (a, b) as functions ax + b: composed, which does not commute.
void compose(const void* first, const void* second, void* result, std::size_t count, int32_t dtype,
             void* user) {
    auto* const calls = static_cast<int*>(user);
    *calls += dtype == static_cast<int32_t>(Dtype::int32) && count % 2 == 0;
    const auto *f = static_cast<const int32_t*>(first), *g = static_cast<const int32_t*>(second);
    auto* out = static_cast<int32_t*>(result);
    for (std::size_t i = 0; i < count; i += 2) {
        const int32_t a = f[i] * g[i], b = f[i + 1] * g[i] + g[i + 1];
        out[i] = a;
        out[i + 1] = b;
    }
}

bool says(const Error& error, std::string_view words) {
    return error.code == Code::invalid && error.message.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("user operator: is called once a kernel, in operand order, and may write to an operand") {
    int calls = 0;
    const Reducer reducer =
        *Reducer::custom({.combine = compose, .user = &calls, .dtype = Dtype::int32, .item = 2});
    for (const Width width : {Width::raw, Width::partial, Width::final})
        REQUIRE(reducer.bytes(width) == 8);
    REQUIRE(reducer.widened().bytes(Width::raw) == 8);
    const std::vector<int32_t> f{2, 1, 3, 5}, g{7, 4, 1, 1}, want{14, 11, 3, 6};
    std::vector<int32_t> in_first = f, in_second = g, apart(4);
    const ReduceFn kernel = reducer.reduce(Width::raw, Width::partial, Width::final, true);
    using Items = std::vector<int32_t>;
    const auto compose_pairs = [&](Items& dst, const Items& a, const Items& b) {
        kernel({.dst = dst.data(),
                .a = a.data(),
                .b = b.data(),
                .count = 2,
                .user = &reducer.function()});
    };
    compose_pairs(in_first, in_first, g);
    compose_pairs(in_second, f, in_second);
    compose_pairs(apart, f, g);
    REQUIRE(in_first == want);
    REQUIRE(in_second == want);
    REQUIRE(apart == want);
    kernel({.count = 0, .user = &reducer.function()});
    REQUIRE(calls == 3);
}

TEST_CASE("user operator: an item has 1 to 64 bytes") {
    const auto make = [](Dtype dtype, uint32_t item) {
        return Reducer::custom({.combine = compose, .dtype = dtype, .item = item});
    };
    REQUIRE(make(Dtype::float64, 8));
    REQUIRE(says(make(Dtype::float64, 9).error(), "9 elements of float64 have 72 bytes"));
    REQUIRE(says(make(static_cast<Dtype>(99), 1).error(), "unknown dtype 99"));
}

TEST_CASE("operators: handles are never used twice, and a stale one is told from a wrong one") {
    UserOperator op;
    op.combine = compose;
    const Op first = add_operator(op), second = add_operator(op);
    REQUIRE(is_user_op(first));
    REQUIRE(find_operator(second)->number == find_operator(first)->number + 1);
    REQUIRE(remove_operator(first));
    REQUIRE(says(find_operator(first).error(), "was destroyed"));
    REQUIRE(says(remove_operator(first).error(), "was destroyed"));
    REQUIRE(add_operator(op) != first);
    REQUIRE(says(find_operator(static_cast<Op>(INT32_MAX)).error(), "unknown operator"));
    REQUIRE(says(remove_operator(Op::max).error(), "max is built in"));
}

TEST_CASE("widened: raw is as wide as partial, and only the result is rounded") {
    const Reducer reducer = Reducer::make(Dtype::bfloat16, Op::sum)->widened();
    REQUIRE(reducer.bytes(Width::raw) == 4);
    REQUIRE(reducer.bytes(Width::final) == 2);
    const float a = 256.5f, b = 1.5f;  // neither sum nor a is a bfloat16 before rounding
    uint16_t sum = 0, copy = 0;
    reducer.reduce(Width::raw, Width::raw, Width::final,
                   false)({.dst = &sum, .a = &a, .b = &b, .count = 1});
    reducer.move(Width::raw, Width::final, false)({.dst = &copy, .a = &a, .count = 1});
    REQUIRE(sum == 0x4381);   // 258
    REQUIRE(copy == 0x4380);  // 256
}
