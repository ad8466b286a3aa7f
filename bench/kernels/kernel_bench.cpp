// Measures the reduction kernels of each instruction set on this machine, without a transport.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/command_line.h"
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
    bool in_place = false;
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

// The two operands and the result of a reduction. They hold ordinary numbers in every dtype,
// because some processors are slow at subnormal numbers and NaN.
struct Arena {
    explicit Arena(std::size_t bytes) : a(bytes, ordinary), b(bytes, ordinary), dst(bytes, 0) {}
    static constexpr char ordinary = 0x3c;
    std::vector<char> a, b, dst;
};

// The best of several blocks: other work on the machine only ever makes a block slower.
class Timing {
public:
    Timing(ReduceFn kernel, const ReduceArgs& args) : kernel_(kernel), args_(args) { kernel(args); }

    void block() {
        const int64_t start = now_ns();
        for (int i = 0; i < repeats_; ++i) kernel_(args_);
        const int64_t block_ns = now_ns() - start;
        best_ = std::min(best_, static_cast<double>(block_ns) * 1e-9 / repeats_);
        if (block_ns < 2'000'000) repeats_ *= 4;
    }
    double best_seconds() const { return best_; }

private:
    ReduceFn kernel_;
    ReduceArgs args_;
    int repeats_ = 1;
    double best_ = 1e9;
};

Timing timing(const Options& options, Dtype dtype, Op op, std::size_t bytes, Arena& arena) {
    const Reducer reducer = *Reducer::make(dtype, op);
    const Width in = options.partial ? Width::partial : Width::raw;
    const ReduceFn kernel = reducer.reduce(Width::raw, in, Width::final, options.stream);
    return {kernel,
            {.dst = options.in_place ? arena.a.data() : arena.dst.data(),
             .a = arena.a.data(),
             .b = arena.b.data(),
             .count = bytes / dtype_bytes(dtype),
             .divisor = 2}};
}

// Bytes of the dtype per second, as the tables of collectives count them: each input byte once.
struct Speed {
    double gigabytes = 0;
    double to_float32 =
        0;  // ratio to float32's sum of as many bytes, in alternating blocks; 0: no such operator
};

Speed measure(const Options& options, Dtype dtype, Op op, std::size_t bytes, Arena& arena) {
    if (!Reducer::make(dtype, op)) return {};
    Timing kernel = timing(options, dtype, op, bytes, arena);
    Timing float32 = timing(options, Dtype::float32, Op::sum, bytes, arena);
    for (int i = 0; i < options.blocks; ++i) {
        kernel.block();
        float32.block();
    }
    return {static_cast<double>(bytes) / kernel.best_seconds() * 1e-9,
            float32.best_seconds() / kernel.best_seconds()};
}

void print_header(const Options& options, const std::vector<Op>& ops) {
    std::printf(
        "# GB/s of one operand and, after it, the ratio to float32's sum: %s%s, best of %d "
        "blocks\n",
        options.in_place ? "a = a + b" : "dst = a + b", options.stream ? ", streamed" : "",
        options.blocks);
    std::printf("%-8s %8s  %-12s", "target", "KiB", "dtype");
    for (const Op op : ops) std::printf(" %13s", std::string(op_name(op)).c_str());
    std::printf("\n");
}

void print_row(const Options& options, Dtype dtype, const std::vector<Op>& ops, std::size_t bytes,
               Arena& arena) {
    for (const Op op : ops) {
        const Speed speed = measure(options, dtype, op, bytes, arena);
        if (speed.to_float32 > 0) {
            std::printf(" %7.2f %4.2fx", speed.gigabytes, speed.to_float32);
        } else {
            std::printf(" %13s", "-");
        }
        std::fflush(stdout);
    }
    std::printf("\n");
}

void print_table(const Options& options, const std::vector<Dtype>& dtypes,
                 const std::vector<Op>& ops) {
    for (const std::size_t kib : options.kib) {
        const std::size_t bytes = kib * 1024;
        // For a small float type, the partial operand (fp32) has up to four times the bytes of the
        // raw operand.
        Arena arena(4 * bytes);
        for (const std::string& target : options.targets) {
            select_simd_target(target);
            for (const Dtype dtype : dtypes) {
                std::printf("%-8s %8zu  %-12s", target.c_str(), kib,
                            std::string(dtype_name(dtype)).c_str());
                print_row(options, dtype, ops, bytes, arena);
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
        "Measures the reduction kernels: GB/s for each dtype, operator and instruction set",
        "tutti-kernel-bench"};
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
    app.add_option("--blocks", options.blocks, "number of measurements; the best one counts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_flag("--in-place", options.in_place, "the result replaces the first operand");
    app.add_flag("--stream", options.stream, "store the result with non-temporal stores");
    app.add_flag("--partial", options.partial, "the second operand is an fp32 partial sum");
    if (const auto code = command_line::parse(app, argc, argv, [] {})) return *code;

    if (options.targets.empty()) options.targets = known_targets;
    const auto dtypes = all_named<Dtype>(dtype_count, dtype_name, options.dtypes);
    const auto ops = all_named<Op>(op_count, op_name, options.ops);
    print_header(options, ops);
    print_table(options, dtypes, ops);
    return 0;
}
