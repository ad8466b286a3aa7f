// 16-bit parameters where the layer adds itself: fixed order, and LocalSGD.
#include <cmath>

#include "support/catch.h"
#include "trainer/expect.h"
#include "trainer/ranks.h"
#include "tutti/trainer.hpp"

namespace {

using Bits = std::vector<uint16_t>;

struct Format {
    tutti_dtype dtype;
    int digits;  // of the significand, with the leading one
    int bias;
};
constexpr Format bfloat16{TUTTI_BFLOAT16, 8, 127}, float16{TUTTI_FLOAT16, 11, 15};

// Written for these tests, by arithmetic: normal numbers and zero.
uint16_t round_to(const Format& f, double value) {
    if (value == 0) return 0;
    int exponent = 0;
    double significand = std::frexp(std::fabs(value), &exponent);
    significand = std::nearbyint(std::ldexp(significand, f.digits));
    if (significand == std::ldexp(1, f.digits)) significand /= 2, ++exponent;
    const auto rest = static_cast<unsigned>(significand) & ((1u << (f.digits - 1)) - 1);
    const auto power = static_cast<unsigned>(exponent - 1 + f.bias);
    return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) | power << (f.digits - 1) | rest);
}

double value_of(const Format& f, uint16_t bits) {
    const unsigned rest = bits & ((1u << (f.digits - 1)) - 1);
    const int power = static_cast<int>((bits & 0x7fffu) >> (f.digits - 1));
    const double magnitude =
        power == 0 ? 0 : std::ldexp(1 + std::ldexp(rest, 1 - f.digits), power - f.bias);
    return bits & 0x8000u ? -magnitude : magnitude;
}

constexpr int count = 300, parts = 4;

// Exact in the format; sums of four are not.
double gradient_of(const Format& f, int part, int i) {
    const int limit = 1 << f.digits;
    const int number = (part * 7919 + i * 104729 + 12345) % (2 * limit) - limit;
    return (number | 1) / 64.0;
}

tutti::TrainerSpec spec(const Format& f, int devices, tutti_comm* comm,
                        tutti_trainer_options options, double rate = 0) {
    tutti::TrainerSpec spec{.devices = devices, .comm = comm, .options = options};
    const int micro_batches = options.micro_batches;
    spec.forward = [=](tutti::Model& m, double) {
        const tutti_buffer w = m.buffer("w", TUTTI_PARAMETER, f.dtype, {count});
        const tutti_buffer loss = m.activation<float>("loss", {1});
        const int first = m.replica() * micro_batches;
        m.operation(
            "values", {w}, {loss}, [=](const tutti::Step& s) { *s.data<float>(loss) = 0; },
            [=](const tutti::Step& s) {
                for (int i = 0; i < count; ++i)
                    s.gradient<uint16_t>(w)[i] =
                        round_to(f, gradient_of(f, first + s.micro_batch(), i));
            });
        return tutti::Losses{loss};
    };
    spec.update = [=](tutti::Model& m, double) {
        const tutti_buffer w = m.find("w"), g = m.gradient(w);
        m.operation("sgd", {w, g}, {w}, [=](const tutti::Step& s) {
            for (int i = 0; rate != 0 && i < count; ++i) {
                uint16_t& at = s.data<uint16_t>(w)[i];
                at = round_to(f, value_of(f, at) - rate * value_of(f, s.data<uint16_t>(g)[i]));
            }
        });
    };
    return spec;
}

Bits reduced(const Format& f, int devices, tutti_comm* comm, int micro_batches) {
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.fixed_order = 1;
    options.micro_batches = micro_batches;
    tutti::Trainer trainer(spec(f, devices, comm, options));
    trainer.init_sync();
    trainer.step();
    trainer.step();  // nothing is left of the first
    const Bits found = trainer.read<uint16_t>(0, "w_grad");
    for (int d = 1; d < devices; ++d)
        ranks::require(trainer.read<uint16_t>(d, "w_grad") == found, "devices differ");
    return found;
}

}  // namespace

TEST_CASE("16 bits: a fixed order has the same bits however parts are spread, rounded once") {
    for (const Format& f : {bfloat16, float16}) {
        Bits expected;
        for (int i = 0; i < count; ++i) {
            double sum = 0;  // of these numbers every order is exact in float32
            for (int p = 0; p < parts; ++p) sum += gradient_of(f, p, i);
            expected.push_back(round_to(f, sum));
        }
        REQUIRE(reduced(f, 1, nullptr, 4) == expected);
        REQUIRE(reduced(f, 2, nullptr, 2) == expected);
        REQUIRE(reduced(f, 4, nullptr, 1) == expected);
        for (const auto& [ranks, devices, micro_batches] :
             {std::tuple{2, 2, 1}, std::tuple{4, 1, 1}, std::tuple{2, 1, 2}})
            expect::no_problem(
                ranks::run(ranks, [&, d = devices, m = micro_batches](tutti_comm* comm, int) {
                    ranks::require(reduced(f, d, comm, m) == expected, "bits");
                }));
    }
}

TEST_CASE("16 bits: LocalSGD averages in float32 and rounds the parameters") {
    for (const Format& f : {bfloat16, float16}) {
        constexpr double rate = 1.0 / 256;
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.local_steps = 2;
        tutti::Trainer trainer(spec(f, 2, nullptr, options, rate));
        Bits w(count, round_to(f, 1.5));
        trainer.write(0, "w", w);
        trainer.init_sync();
        for (int turn = 0; turn < 3; ++turn) {
            for (int i = 0; i < count; ++i) {
                const double before = value_of(f, w[static_cast<std::size_t>(i)]);
                double sum = 0;
                for (int replica = 0; replica < 2; ++replica) {
                    double at = before;
                    for (int k = 0; k < 2; ++k)
                        at = value_of(f, round_to(f, at - rate * gradient_of(f, replica, i)));
                    sum += at - before;
                }
                w[static_cast<std::size_t>(i)] = round_to(f, before + sum / 2);
            }
            trainer.step();
            trainer.step();
            REQUIRE(trainer.read<uint16_t>(0, "w") == w);
            REQUIRE(trainer.read<uint16_t>(1, "w") == w);
        }
    }
}

TEST_CASE("16 bits: what is not changed comes back as it was, for every finite number") {
    for (const Format& f : {bfloat16, float16}) {
        Bits all;
        const unsigned infinity = f.digits == 8 ? 0x7f80u : 0x7c00u;
        for (unsigned bits = 0; bits < 0x10000u; ++bits)
            if ((bits & 0x7fffu) < infinity && bits != 0x8000u)  // - 0 + 0 is 0
                all.push_back(static_cast<uint16_t>(bits));
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.local_steps = 1;
        tutti::TrainerSpec still = spec(f, 2, nullptr, options);
        const auto forward = still.forward;
        const auto size = static_cast<int64_t>(all.size());
        still.forward = [=](tutti::Model& m, double scale) {
            m.buffer("all", TUTTI_PARAMETER, f.dtype, {size});
            return forward(m, scale);
        };
        tutti::Trainer trainer(still);
        trainer.write(0, "all", all);
        trainer.init_sync();
        trainer.step();
        REQUIRE(trainer.read<uint16_t>(1, "all") == all);
    }
}
