#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "command_line.h"

namespace bench {
namespace {

constexpr const char* description =
    R"(tutti-bench - measure and check a collective operation

tutti-bench prints a table like that of nccl-tests: for every size the time of one operation, algbw
(bytes / time), busbw and the number of wrong elements, first out of place, then in place. busbw is
algbw x 2(n-1)/n for allreduce, x (n-1)/n for collectives in which every rank has a block
(allgather, reduce_scatter, gather, scatter, alltoall), x 1 for broadcast, reduce, scan and exscan.
A size is that of the larger buffer: all blocks together, rounded down to the same number of
elements for every rank (the count column). The time is the median over the iterations, on the
slowest rank. In collectives whose ranks need not wait for each other (broadcast, reduce, gather,
scatter, scan, exscan) the time ends when all ranks are done: a barrier, shared by up to 100
iterations. A GB is 10^9 bytes. Every rank runs this program; --ranks starts the ranks.)";

constexpr const char* footer = R"(EXIT CODES
  0  all results were right
  1  a result was wrong, or an operation failed
  2  wrong usage, or no operation that was asked for can run on this machine

EXAMPLES
  tutti-bench allreduce --ranks 2
  tutti-bench allreduce --ranks 2 --transport tcp -b 1K -e 64M -f 2 --json tcp.json
  tutti-bench allreduce --ranks 4 --dtype float32,bfloat16 --op all -e 1M
  tutti-bench broadcast --ranks 4 --algorithm all --explain
  tutti-bench alltoall --ranks 4 -b 1K -e 16M --inplace-only
  tutti-bench reduce --ranks 3 --root 2 --op max --dtype int32
  tutti-bench allreduce --ranks 2 --nrings 1,2,4 --streams 4 -b 1M
  tutti-bench allreduce --ranks 2 --memory device --peer nccl
  tutti-run -n 4 --hosts-act 2 tutti-bench barrier)";

struct Texts {
    std::string collective, begin, end, algorithm;
    std::vector<std::string> dtypes, ops;
};

void add_what(CLI::App& app, Options& o, Texts& t) {
    std::vector<std::string> names;
    for (const Collective& collective : collectives()) names.emplace_back(collective.name);
    const auto middle = names.begin() + static_cast<std::ptrdiff_t>(names.size() / 2);
    const std::string list = fmt::format("{},\n{}", fmt::join(names.begin(), middle, ", "),
                                         fmt::join(middle, names.end(), ", "));
    app.add_option("COLLECTIVE", t.collective, list)
        ->required()
        ->type_name("")
        ->check(CLI::IsMember(names).description(""));
    app.add_option("-b,--begin", t.begin, "smallest size (default 8)")
        ->type_name("BYTES")
        ->check(command_line::check_bytes);
    app.add_option("-e,--end", t.end, "largest size (default 128M)")
        ->type_name("BYTES")
        ->check(command_line::check_bytes);
    app.add_option("-f,--factor", o.factor, "factor between one size and the next (default 4)")
        ->type_name("N")
        ->check(CLI::Range(2, 1 << 30));
    app.add_option("--dtype", t.dtypes, "element types, or all (default float32)")
        ->type_name("LIST")
        ->delimiter(',');
    app.add_option("--op", t.ops, "operators, or all (default sum)")
        ->type_name("LIST")
        ->delimiter(',');
    app.add_option("--root", o.root, "root of a broadcast, reduce, gather or scatter (default 0)")
        ->type_name("RANK")
        ->check(command_line::not_negative);
    app.add_flag_callback(
        "--inplace-only", [&o] { o.out_of_place = false; }, "leave out the out-of-place half");
    app.add_flag_callback(
        "--out-of-place-only", [&o] { o.in_place = false; }, "leave out the in-place half");
}

void add_how(CLI::App& app, Options& o, Texts& t) {
    app.add_option("--ranks", o.ranks, "start N ranks on this machine, with tutti-run")
        ->type_name("N")
        ->check(CLI::Range(1, 4096));
    app.add_option("-n,--iters", o.iters,
                   "timed iterations per size (default: as many as take 0.2 s, at most 1 s)")
        ->type_name("N")
        ->check(CLI::Range(1, std::numeric_limits<int>::max()));
    app.add_option("-w,--warmup", o.warmup, "iterations before the timed ones (default 5)")
        ->type_name("N")
        ->check(command_line::not_negative);
    app.add_option("--transport", o.transport, "transports to use, e.g. shm,tcp")
        ->type_name("LIST");
    app.add_option("--algorithm", t.algorithm, "one algorithm, or all: a table for each")
        ->type_name("NAME");
    app.add_option("--nrings", o.nrings,
                   "number of rings of the communicator; a list gives a table for each")
        ->type_name("LIST")
        ->delimiter(',')
        ->check(CLI::Range(1, 16));
    app.add_flag("--async", o.async, "measure non-blocking operations: start, then wait");
    app.add_option("--streams", o.streams,
                   "number of operations in flight, each on its own ring (implies --async)")
        ->type_name("K")
        ->check(CLI::Range(1, 1024));
    app.add_option_function<std::string>(
           "--memory", [&o](const std::string& kind) { o.device = kind == "device"; },
           "memory of the buffers: host, or device, the GPU that CUDA_VISIBLE_DEVICES and the rank "
           "choose")
        ->check(CLI::IsMember({"host", "device"}));
    app.add_option_function<std::string>(
           "--peer", [&o](const std::string&) { o.nccl = true; },
           "nccl: also measure direct calls of NCCL, in turns with tutti's (with --memory device)")
        ->check(CLI::IsMember({"nccl"}));
    app.add_flag("--persistent", o.persistent, "measure plans: bind once, run often");
}

void add_report(CLI::App& app, Options& o) {
    app.add_flag("--check", o.check, "check every element (the default)");
    app.add_flag_callback(
        "--no-check", [&o] { o.check = false; }, "only measure");
    app.add_flag("--stats,--percentiles", o.stats,
                 "also print p50, p99, min and the ranks' min, avg, max");
    app.add_flag("--explain", o.explain, "print the reason for the library's choice at every size");
    app.add_option("--json", o.json, "also write the results to FILE; - for standard output")
        ->type_name("FILE");
}

using NameOf = const char* (*)(int32_t);

// Translates names to numbers. "all" stands for every number.
std::vector<int32_t> numbers_of(const std::vector<std::string>& names, NameOf name_of_number,
                                const char* option) {
    std::vector<std::string> known;
    for (int32_t i = 0; name_of_number(i) != nullptr; ++i) known.emplace_back(name_of_number(i));
    std::vector<int32_t> numbers;
    for (const std::string& name : names) {
        const auto at = std::find(known.begin(), known.end(), name);
        if (name != "all" && at == known.end())
            throw CLI::ValidationError(
                option, command_line::with_advice(
                            fmt::format("unknown name '{}'", name),
                            fmt::format("give one of {}, all", fmt::join(known, ", "))));
        if (name != "all") numbers.push_back(static_cast<int32_t>(at - known.begin()));
        for (std::size_t i = 0; name == "all" && i < known.size(); ++i)
            numbers.push_back(static_cast<int32_t>(i));
    }
    return numbers;
}

// The library checks other names, because it also knows the names of intrinsics.
std::vector<std::string> algorithms_of(const Collective& collective, const std::string& wanted) {
    if (wanted != "all") return {wanted};
    std::vector<std::string> known;
    for (int i = 0; const char* name = tutti_algorithm_name(collective.name, i); ++i)
        known.emplace_back(name);
    return known;
}

void check_transports(const std::string& list) {
    std::vector<std::string> known;
    for (int i = 0; const char* name = tutti_transport_name(i); ++i) known.emplace_back(name);
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');)
        if (std::find(known.begin(), known.end(), name) == known.end())
            throw CLI::ValidationError(
                "--transport",
                command_line::with_advice(fmt::format("unknown transport '{}'", name),
                                          fmt::format("use a transport that this build has: {}",
                                                      fmt::join(known, ", "))));
}

void interpret(Options& o, const Texts& t) {
    o.collective = find_collective(t.collective);
    if (!t.begin.empty()) o.begin_bytes = *parse_bytes(t.begin);
    if (!t.end.empty()) o.end_bytes = *parse_bytes(t.end);
    if (t.end.empty() && o.end_bytes < o.begin_bytes) o.end_bytes = o.begin_bytes;
    if (o.end_bytes < o.begin_bytes)
        throw CLI::ValidationError(
            "--end",
            command_line::with_advice("the largest size is smaller than the smallest (--begin)",
                                      "give an --end that is not below --begin"));
    if (!t.dtypes.empty()) o.dtypes = numbers_of(t.dtypes, tutti_dtype_name, "--dtype");
    if (!t.ops.empty()) o.ops = numbers_of(t.ops, tutti_op_name, "--op");
    o.algorithms = algorithms_of(*o.collective, t.algorithm);
    if (!o.in_place && !o.out_of_place)
        throw CLI::ValidationError(
            "--inplace-only",
            command_line::with_advice("cannot be combined with --out-of-place-only",
                                      "give only one of them"));
    if (!o.in_place && o.collective->always_in_place)
        throw CLI::ValidationError(
            "--out-of-place-only",
            command_line::with_advice(fmt::format("a {} is always in place", o.collective->name),
                                      "leave this option out"));
    if (o.nccl && !o.device)
        throw CLI::ValidationError("--peer",
                                   command_line::with_advice("nccl works on device memory only",
                                                             "give --memory device, too"));
    if (o.ranks > 0 && o.root >= o.ranks)
        throw CLI::ValidationError(
            "--root",
            command_line::with_advice(fmt::format("rank {} is out of range", o.root),
                                      fmt::format("give a rank from 0 to {}", o.ranks - 1)));
    check_transports(o.transport);
    if (o.streams > 1) o.async = true;
}

}  // namespace

std::vector<std::size_t> sweep_counts(const Options& options, std::size_t element_bytes,
                                      int ranks) {
    const Collective& c = *options.collective;
    if (c.in.row || c.out.row) element_bytes *= static_cast<std::size_t>(ranks);
    std::vector<std::size_t> counts;
    for (std::size_t bytes = options.begin_bytes; bytes <= options.end_bytes;) {
        const std::size_t count = bytes / element_bytes;
        if (counts.empty() || counts.back() != count) counts.push_back(count);
        if (bytes > options.end_bytes / options.factor && bytes != 0) break;
        bytes = bytes == 0 ? element_bytes : bytes * options.factor;
    }
    return counts;
}

Parsed parse_options(int argc, char** argv) {
    Parsed parsed;
    Texts texts;
    CLI::App app(description, "tutti-bench");
    command_line::dress(app, "tutti-bench COLLECTIVE [OPTIONS]", footer, tutti_version());
    add_what(app, parsed.options, texts);
    add_how(app, parsed.options, texts);
    add_report(app, parsed.options);
    parsed.exit_code =
        command_line::parse(app, argc, argv, [&] { interpret(parsed.options, texts); });
    return parsed;
}

}  // namespace bench
