// The arithmetic that devices' kernels are made of against the host's kernels: the same bits for
// every type, operator, form and number of inputs.
#include <random>

#include "reduce/fold_host.h"
#include "reduce/reference.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t count = 4096;

/// The host's way, as prepare() does it: in the accumulator's form from the second input on.
Buffer by_kernels(const Reducer& r, const std::vector<Buffer>& inputs, bool final,
                  int32_t divisor) {
    Buffer wide(count * r.bytes(Width::partial)), out(count * r.bytes(Width::final));
    const void* so_far = inputs[0].data();
    Width form = Width::raw;
    for (std::size_t k = 1; k < inputs.size(); ++k) {
        const bool last = final && k + 1 == inputs.size();
        r.reduce(form, Width::raw, last ? Width::final : Width::partial,
                 false)({.dst = last ? out.data() : wide.data(),
                         .a = so_far,
                         .b = inputs[k].data(),
                         .count = count,
                         .divisor = divisor});
        so_far = wide.data();
        form = Width::partial;
    }
    return final ? out : wide;
}

Buffer by_fold(fold::Loop loop, const Reducer& r, const std::vector<Buffer>& inputs, bool final,
               int32_t divisor) {
    Buffer out(count * r.bytes(final ? Width::final : Width::partial));
    fold::Args args;
    for (std::size_t k = 0; k < inputs.size(); ++k) args.in[k] = inputs[k].data();
    args.inputs = static_cast<int32_t>(inputs.size());
    args.final = final;
    args.divisor = divisor;
    args.out = out.data();
    args.count = count;
    loop(args);
    return out;
}

}  // namespace

TEST_CASE("fold: every type and operator has the bits of the host's kernels") {
    const unsigned seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (const Dtype dtype : all_dtypes())
        for (const Op op : all_ops()) {
            const auto reducer = Reducer::make(dtype, op);
            const fold::Loop loop = fold::find_loop(static_cast<int>(dtype), static_cast<int>(op));
            CAPTURE(dtype_name(dtype), op_name(op));
            REQUIRE((loop != nullptr) == reducer.has_value());
            if (!loop) continue;
            for (const std::size_t inputs : {2, 3, 5}) {
                std::vector<Buffer> in;
                for (std::size_t k = 0; k < inputs; ++k)
                    in.push_back(random_elements(dtype, false, count, random));
                // More than an 8-bit integer holds too.
                const int32_t divisor = inputs == 5 ? 300 : 3;
                for (const bool final : {false, true}) {
                    const Problem problem{
                        .dtype = dtype, .op = op, .wr = final ? Width::final : Width::partial};
                    const Buffer wanted = by_kernels(*reducer, in, final, divisor),
                                 got = by_fold(loop, *reducer, in, final, divisor);
                    const std::size_t at =
                        first_difference(problem, got.data(), wanted.data(), count, true);
                    const std::size_t bytes = reducer->bytes(final ? Width::final : Width::partial);
                    INFO(inputs << " inputs, " << (final ? "final" : "partial") << ", element "
                                << at);
                    if (at < count) {
                        INFO("got " << hex(got.data() + at * bytes, bytes) << ", wanted "
                                    << hex(wanted.data() + at * bytes, bytes));
                        REQUIRE(at == count);
                    }
                }
            }
        }
}

TEST_CASE("fold: more inputs than fit go on from the accumulator") {
    std::mt19937_64 random(7);
    for (const Dtype dtype : {Dtype::bfloat16, Dtype::float8_e4m3, Dtype::float32, Dtype::int8}) {
        const Reducer reducer = *Reducer::make(dtype, Op::sum);
        const fold::Loop loop = fold::find_loop(static_cast<int>(dtype), fold::sum);
        std::vector<Buffer> in;
        for (int k = 0; k < 6; ++k) in.push_back(random_elements(dtype, false, count, random));
        const Buffer wanted = by_kernels(reducer, in, true, 1);
        const Buffer so_far = by_fold(loop, reducer, {in[0], in[1], in[2]}, false, 1);
        Buffer out(wanted.size());
        fold::Args args;
        args.in[0] = so_far.data();
        for (std::size_t k = 3; k < 6; ++k) args.in[k - 2] = in[k].data();
        args.inputs = 4;
        args.first_partial = 1;
        args.final = 1;
        args.out = out.data();
        args.count = count;
        loop(args);
        REQUIRE(out == wanted);
    }
}
