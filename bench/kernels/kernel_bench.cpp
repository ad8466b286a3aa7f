// How fast the reduction kernels are on this machine, per instruction set, without any transport.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "reduce/reduce.h"
#include "reduce/targets.h"

namespace {

using namespace tutti;

struct Options {
    std::vector<std::string> dtypes;
    std::vector<std::string> ops;
    std::vector<std::string> targets;
    std::vector<std::size_t> kib = {256, 16384};
    int blocks = 7;
    bool also = false;
    bool stream = false;
    bool partial = false;
};

template <class T, class Name>
std::vector<T> all_named(int count, Name name, const std::vector<std::string>& wanted) {
    std::vector<T> list;
    for (int i = 0; i < count; ++i) {
        const auto value = static_cast<T>(i);
        const bool keep =
            wanted.empty() || std::find(wanted.begin(), wanted.end(), name(value)) != wanted.end();
        if (keep) list.push_back(value);
    }
    return list;
}

// What one reduction works on: two operands, two results, all of ones so that nothing overflows
// into subnormals or NaNs, which some processors are slow at.
struct Arena {
    explicit Arena(std::size_t bytes) : a(bytes, 0), b(bytes, 0), dst(bytes, 0), also(bytes, 0) {}
    std::vector<char> a, b, dst, also;
};

// The best of several blocks: other work on the machine only ever makes a block slower.
double best_seconds(ReduceFn kernel, const ReduceArgs& args, int blocks) {
    kernel(args);
    int64_t block_ns = 0;
    int repeats = 1;
    double best = 1e9;
    for (int block = 0; block < blocks; ++block) {
        const int64_t start = now_ns();
        for (int i = 0; i < repeats; ++i) kernel(args);
        block_ns = now_ns() - start;
        best = std::min(best, static_cast<double>(block_ns) * 1e-9 / repeats);
        if (block_ns < 2'000'000) repeats *= 4;
    }
    return best;
}

// Bytes of the dtype per second, as the tables of collectives count them: each input byte once.
double gigabytes_per_second(const Options& options, Dtype dtype, Op op, std::size_t bytes,
                            Arena& arena) {
    const Reducer reducer = *Reducer::make(dtype, op);
    const std::size_t count = bytes / dtype_bytes(dtype);
    const Width in = options.partial ? Width::partial : Width::raw;
    const ReduceArgs args{.dst = arena.dst.data(),
                          .also = options.also ? arena.also.data() : nullptr,
                          .a = arena.a.data(),
                          .b = arena.b.data(),
                          .count = count,
                          .divisor = 2};
    const ReduceFn kernel = reducer.reduce(Width::raw, in, Width::final, options.stream);
    return static_cast<double>(bytes) / best_seconds(kernel, args, options.blocks) * 1e-9;
}

void print_header(const Options& options, const std::vector<Op>& ops) {
    std::printf("# GB/s of one operand: dst = a + b%s%s, best of %d blocks\n",
                options.also ? ", also = dst" : "", options.stream ? ", dst streamed" : "",
                options.blocks);
    std::printf("%-8s %8s  %-12s", "target", "KiB", "dtype");
    for (const Op op : ops) std::printf(" %7s", std::string(op_name(op)).c_str());
    std::printf("\n");
}

void print_table(const Options& options, const std::vector<Dtype>& dtypes,
                 const std::vector<Op>& ops) {
    for (const std::size_t kib : options.kib) {
        const std::size_t bytes = kib * 1024;
        // A small float's partial operand takes four times the bytes of its raw one, at most.
        Arena arena(4 * bytes);
        for (const std::string& target : options.targets) {
            select_simd_target(target);
            for (const Dtype dtype : dtypes) {
                std::printf("%-8s %8zu  %-12s", target.c_str(), kib,
                            std::string(dtype_name(dtype)).c_str());
                for (const Op op : ops) {
                    if (!Reducer::make(dtype, op)) {
                        std::printf(" %7s", "-");
                        continue;
                    }
                    std::printf(" %7.2f", gigabytes_per_second(options, dtype, op, bytes, arena));
                    std::fflush(stdout);
                }
                std::printf("\n");
            }
        }
    }
}

template <class T, class Name>
std::vector<std::string> names_of(const std::vector<T>& values, Name name) {
    std::vector<std::string> names;
    for (const T value : values) names.emplace_back(name(value));
    return names;
}

}  // namespace

int main(int argc, char* argv[]) {
    Options options;
    std::vector<std::string> known_targets;
    for (const std::string_view target : simd_targets()) known_targets.emplace_back(target);
    const auto known_dtypes = names_of(all_named<Dtype>(dtype_count, dtype_name, {}), dtype_name);
    const auto known_ops = names_of(all_named<Op>(op_count, op_name, {}), op_name);

    CLI::App app{
        "Measures the reduction kernels: GB/s for each dtype, operator and instruction set"};
    app.add_option("--dtype", options.dtypes, "only these dtypes")
        ->delimiter(',')
        ->check(CLI::IsMember(known_dtypes));
    app.add_option("--op", options.ops, "only these operators")
        ->delimiter(',')
        ->check(CLI::IsMember(known_ops));
    app.add_option("--target", options.targets, "only these instruction sets")
        ->delimiter(',')
        ->check(CLI::IsMember(known_targets));
    app.add_option("--kib", options.kib, "sizes of one operand, KiB")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("--blocks", options.blocks, "measurements, of which the best counts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_flag("--also", options.also, "store the result twice, as a ring does");
    app.add_flag("--stream", options.stream, "store the result past the caches");
    app.add_flag("--partial", options.partial, "the second operand is an fp32 partial sum");
    CLI11_PARSE(app, argc, argv);

    if (options.targets.empty()) options.targets = known_targets;
    const auto dtypes = all_named<Dtype>(dtype_count, dtype_name, options.dtypes);
    const auto ops = all_named<Op>(op_count, op_name, options.ops);
    print_header(options, ops);
    print_table(options, dtypes, ops);
    return 0;
}
