// The sharded fully-connected layer at its intended size.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/complain.h"
#include "tutti/trainer_sharded.h"
#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Sizes {
    int64_t classes = 1'000'000;
    std::size_t features = 128;
    std::size_t batch = 16;
    std::size_t steps = 5;
};

/// The bytes that the layer allocates and the time of its products. The functions of the layer's
/// function table count them.
struct Account {
    std::size_t bytes = 0;
    double product_s = 0;
};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

tutti_status gemm(void* user, int ta, int tb, size_t m, size_t n, size_t k, const float* a,
                  const float* b, float beta, float* c) {
    const auto start = Clock::now();
    const auto number = [](size_t value) { return static_cast<int>(value); };
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                number(m), number(n), number(k), 1, a, number(ta ? m : k), b, number(tb ? k : n),
                beta, c, number(n));
    static_cast<Account*>(user)->product_s += seconds_since(start);
    return TUTTI_OK;
}

void ok(tutti_status status) {
    if (status != TUTTI_OK) throw std::runtime_error(tutti_trainer_last_error());
}

void run(tutti::Communicator& comm, const Sizes& sizes) {
    Account account;
    tutti_fc_math math = *tutti_fc_math_host();
    math.user = &account;
    math.gemm = gemm;
    math.alloc = [](void* user, size_t bytes) -> void* {
        static_cast<Account*>(user)->bytes += bytes;
        return std::malloc(std::max<size_t>(1, bytes));
    };
    tutti_sharded_fc_spec spec = TUTTI_SHARDED_FC_SPEC_INIT;
    spec.comm = comm.get();
    spec.classes = sizes.classes;
    spec.features = sizes.features;
    spec.math = &math;
    tutti_sharded_fc* layer = nullptr;
    ok(tutti_sharded_fc_create(&spec, &layer));
    int64_t first = 0, count = 0;
    ok(tutti_shard_range(sizes.classes, comm.size(), comm.rank(), &first, &count));

    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::uniform_real_distribution<float> value(-0.1F, 0.1F);
    const std::size_t own = static_cast<std::size_t>(count) * sizes.features;
    std::vector<float> weight(own), dweight(own), x(sizes.batch * sizes.features), dx(x.size());
    for (std::vector<float>* values : {&weight, &x})
        for (float& v : *values) v = value(random);
    std::vector<int64_t> labels(sizes.batch);
    for (int64_t& label : labels) label = static_cast<int64_t>(random()) % sizes.classes;

    std::vector<double> step_s, product_s;
    double loss = 0;
    for (std::size_t step = 0; step <= sizes.steps; ++step) {
        comm.barrier();
        account.product_s = 0;
        const auto start = Clock::now();
        ok(tutti_sharded_fc_forward(layer, x.data(), labels.data(), sizes.batch, weight.data(),
                                    nullptr, &loss));
        ok(tutti_sharded_fc_backward(layer, 1, weight.data(), dx.data(), dweight.data(), nullptr));
        if (step == 0) continue;  // the first step touches its memory for the first time
        step_s.push_back(seconds_since(start));
        product_s.push_back(account.product_s);
    }
    tutti_sharded_fc_destroy(layer);
    // Weights this small give nearly equal logits, so the loss must be near log(classes).
    if (std::fabs(loss - std::log(static_cast<double>(sizes.classes))) > 0.5)
        throw std::runtime_error(fmt::format("the loss is {}", loss));

    const auto middle = [](std::vector<double>& all) {
        std::nth_element(all.begin(), all.begin() + static_cast<long>(all.size() / 2), all.end());
        return all[all.size() / 2];
    };
    std::array<double, 2> times{middle(step_s), middle(product_s)};
    comm.allreduce(times, TUTTI_MAX);
    if (comm.rank() != 0) return;
    const double mib = 1 << 20, all = static_cast<double>(sizes.batch) * comm.size();
    const auto rank_bytes = static_cast<double>(account.bytes + 2 * own * sizeof(float));
    const double width = static_cast<double>(sizes.features),
                 n = static_cast<double>(sizes.classes);
    fmt::print(
        "# classes features batch ranks  step_ms products_ms  MiB/rank MiB_unsharded ratio\n");
    const double whole = sizeof(float) * (2 * n * width + all * n + 2 * all * width);
    fmt::print("{:>9} {:>8} {:>5} {:>5} {:>8.1f} {:>11.1f} {:>9.1f} {:>13.1f} {:>5.3f}\n",
               sizes.classes, sizes.features, static_cast<std::size_t>(all), comm.size(),
               1e3 * times[0], 1e3 * times[1], rank_bytes / mib, whole / mib, rank_bytes / whole);
}

constexpr const char* usage =
    "tutti-sharded-bench - measure the sharded fully-connected layer\n\n"
    "Prints a step's time, the products' share of it, and a rank's memory beside that of the\n"
    "unsharded layer.\n\n"
    "Usage: tutti-run -n N tutti-sharded-bench [CLASSES [FEATURES [BATCH-PER-RANK [STEPS]]]]\n";

std::size_t number(std::string_view text) {
    std::size_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || rest != text.data() + text.size() || value == 0)
        throw std::runtime_error(
            command_line::with_advice(fmt::format("'{}' is not a size", text),
                                      "give whole numbers above 0; --help has their order"));
    return value;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc > 1 && std::string_view(argv[1]) == "--help") {
            fmt::print("{}", usage);
            return 0;
        }
        Sizes sizes;
        if (argc > 1) sizes.classes = static_cast<int64_t>(number(argv[1]));
        if (argc > 2) sizes.features = number(argv[2]);
        if (argc > 3) sizes.batch = number(argv[3]);
        if (argc > 4) sizes.steps = number(argv[4]);
        tutti::Communicator comm;
        run(comm, sizes);
    } catch (const std::exception& error) {
        command_line::complain("tutti-sharded-bench", error.what());
        return 1;
    }
}
