#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/version.h"
#include "bench/command_line.h"
#include "bench/sizes.h"
#include "collectives/catalog.h"
#include "tools/dtype_option.h"
#include "units.h"

namespace tutti::sim {
namespace {

constexpr int max_ranks = 1024;

constexpr const char* description =
    R"(tutti-sim - simulate a collective operation on a network you describe

tutti-sim runs tutti's own algorithms, cut into messages as the library cuts them, over a model of a
network. Each host has one link each way to its switch, each switch has one link each way to a core,
and each link lets one message pass at a time. For every size tutti-sim prints the time until the
last rank is done, the messages and bytes of the rank that sends most, and the link that is busy the
longest. A * marks the algorithm that the library would choose. tutti-sim sends nothing; the same
command always prints the same numbers. A size is that of the larger buffer: all blocks together.)";

constexpr const char* footer = R"(UNITS
  BYTES   8, 64K, 16M, 1G (powers of 1024)
  TIME    200ns, 10us, 0.5ms
  RATE    1Gbit, 100Mbit, 12.5GB, 800MB (powers of 1000, per second)

EXIT CODES
  0  all simulations were done
  1  tutti-sim could not write a file, or a simulation did not end (the message has the reason)
  2  wrong usage

EXAMPLES
  tutti-sim allreduce --ranks 16
  tutti-sim allreduce --ranks 64 --hosts 8 -b 1K -e 64M --plot times.svg
  tutti-sim allreduce --ranks 8 --algorithm ring -b 64K -e 64K --draw ring.svg
  tutti-sim alltoall --ranks 32 --switches 4 --oversubscription 4 --json alltoall.json
  tutti-sim broadcast --ranks 1024 --hosts 128 --bandwidth 100Gbit --latency 2us)";

struct Texts {
    std::string collective, algorithm = "all", begin, end, dtype;
    std::string bandwidth, latency, overhead;
    std::string memory_bandwidth, memory_latency, memory_overhead, reduce_bandwidth;
    int hosts = 0, switches = 0;
};

std::string check_time(const std::string& text) {
    const auto us = parse_us(text);
    if (us && *us <= 1e9) return {};
    return command_line::with_advice(fmt::format("'{}' is not a time", text),
                                     "give one such as 200ns, 10us or 0.5ms");
}

std::string check_rate(const std::string& text) {
    if (parse_bytes_per_s(text)) return {};
    return command_line::with_advice(fmt::format("'{}' is not a bandwidth", text),
                                     "give one such as 1Gbit, 100Mbit or 12.5GB");
}

void add_what(CLI::App& app, Options& o, Texts& t) {
    std::vector<std::string> names;
    for (const CollectiveTraits& c : collective_traits) names.emplace_back(c.name);
    app.add_option("COLLECTIVE", t.collective, fmt::format("{}", fmt::join(names, ", ")))
        ->required()
        ->type_name("")
        ->check(CLI::IsMember(names).description(""));
    app.add_option("-n,--ranks", o.ranks, "the number of ranks, up to 1024")
        ->required()
        ->type_name("N")
        ->check(CLI::Range(1, max_ranks).description(""));
    app.add_option("-b,--begin", t.begin, "smallest size (default 1K)")
        ->type_name("BYTES")
        ->check(command_line::check_bytes);
    app.add_option("-e,--end", t.end, "largest size (default 16M)")
        ->type_name("BYTES")
        ->check(command_line::check_bytes);
    app.add_option("-f,--factor", o.factor, "factor between one size and the next (default 4)")
        ->type_name("N")
        ->check(CLI::Range(2, 1 << 30).description(""));
    app.add_option("--algorithm", t.algorithm,
                   "one algorithm, or all (the default): a table for each")
        ->type_name("NAME");
    app.add_option("--dtype", t.dtype, "element type (default float32)")->type_name("TYPE");
    app.add_option("--root", o.root, "root of a broadcast, reduce, gather or scatter (default 0)")
        ->type_name("RANK")
        ->check(command_line::not_negative);
    app.add_option("--lanes", o.lanes, "number of lanes (default: the library's choice)")
        ->type_name("N")
        ->check(CLI::Range(1, 8).description(""));
}

void add_network(CLI::App& app, Options& o, Texts& t) {
    app.add_option("--hosts", t.hosts,
                   "number of hosts, each with a block of the ranks (default: one for each rank)")
        ->type_name("H")
        ->check(CLI::Range(1, max_ranks).description(""));
    app.add_option("--switches", t.switches,
                   "number of switches, each with a block of the hosts (default 1; 2 with "
                   "--oversubscription)")
        ->type_name("S")
        ->check(CLI::Range(1, max_ranks).description(""));
    app.add_option("--oversubscription", o.network.oversubscription,
                   "bandwidth of all hosts of a switch divided by that of its link to the core "
                   "(default 1)")
        ->type_name("X");
    const auto text = [&](const char* name, std::string& value, const char* help, bool rate) {
        app.add_option(name, value, help)
            ->type_name(rate ? "RATE" : "TIME")
            ->check(rate ? check_rate : check_time);
    };
    text("--bandwidth", t.bandwidth, "bandwidth of a host's link, each way (default 10Gbit)", true);
    text("--latency", t.latency, "latency between hosts (default 10us)", false);
    text("--overhead", t.overhead,
         "time that a rank needs to send, and to receive, a message (default 1us)", false);
    text("--memory-bandwidth", t.memory_bandwidth,
         "bandwidth within a host, shared by its ranks (default 20GB)", true);
    text("--memory-latency", t.memory_latency, "latency within a host (default 200ns)", false);
    text("--memory-overhead", t.memory_overhead,
         "as --overhead, for messages within a host (default 100ns)", false);
    text("--reduce-bandwidth", t.reduce_bandwidth,
         "bandwidth at which a rank reduces or copies (default 10GB)", true);
    app.add_option("--credits", o.network.credits,
                   "messages that a channel may have under way (default 8)")
        ->type_name("N")
        ->check(CLI::Range(1, 65535).description(""));
}

void add_report(CLI::App& app, Options& o) {
    app.add_option("--json", o.json, "also write the results to FILE; - for standard output")
        ->type_name("FILE");
    app.add_option("--draw", o.draw,
                   "write a space-time diagram (SVG) of the largest size with the algorithm that "
                   "--algorithm names, or else the library's choice")
        ->type_name("FILE");
    app.add_option("--plot", o.plot,
                   "write a plot (SVG) of times over sizes, a line for each algorithm")
        ->type_name("FILE");
}

Collective collective_of(const std::string& name) {
    const auto at = std::find_if(std::begin(collective_traits), std::end(collective_traits),
                                 [&](const CollectiveTraits& c) { return c.name == name; });
    return static_cast<Collective>(at - std::begin(collective_traits));
}

std::vector<std::string> algorithms_of(const Options& o, const std::string& wanted) {
    std::vector<std::string> all;
    for (const Algorithm& a : algorithms())
        if (a.collective == o.collective) all.emplace_back(a.name);
    if (wanted == "all") return all;
    if (!find_algorithm(o.collective, wanted))
        throw CLI::ValidationError(
            "--algorithm",
            command_line::with_advice(
                fmt::format("unknown algorithm '{}' for {}", wanted, collective_name(o.collective)),
                fmt::format("give one of {}, all", fmt::join(all, ", "))));
    return {wanted};
}

void interpret_network(Options& o, const Texts& t) {
    Network& n = o.network;
    n.hosts = t.hosts != 0 ? t.hosts : o.ranks;
    n.switches = t.switches != 0 ? t.switches : n.oversubscription > 1 && n.hosts > 1 ? 2 : 1;
    if (!t.bandwidth.empty()) n.wire.bytes_per_s = *parse_bytes_per_s(t.bandwidth);
    if (!t.latency.empty()) n.wire.latency_us = *parse_us(t.latency);
    if (!t.overhead.empty()) n.wire.overhead_us = *parse_us(t.overhead);
    if (!t.memory_bandwidth.empty()) n.memory.bytes_per_s = *parse_bytes_per_s(t.memory_bandwidth);
    if (!t.memory_latency.empty()) n.memory.latency_us = *parse_us(t.memory_latency);
    if (!t.memory_overhead.empty()) n.memory.overhead_us = *parse_us(t.memory_overhead);
    if (!t.reduce_bandwidth.empty()) n.reduce_bytes_per_s = *parse_bytes_per_s(t.reduce_bandwidth);
    if (const auto checked = n.check(o.ranks); !checked)
        throw CLI::ValidationError("network", error_text(checked.error()));
}

void check_files(const Options& o) {
    std::vector<std::filesystem::path> paths;
    for (const std::string& name : {o.json, o.draw, o.plot}) {
        if (name.empty()) continue;
        // Make it absolute first: weakly_canonical leaves a missing relative path unchanged.
        std::error_code unknown;
        const auto path =
            std::filesystem::weakly_canonical(std::filesystem::absolute(name), unknown);
        if (std::find(paths.begin(), paths.end(), path) != paths.end())
            throw CLI::ValidationError(
                name,
                command_line::with_advice(
                    "given to more than one option",
                    "give --json, --draw and --plot different files, and one of them at most -"));
        paths.push_back(path);
    }
}

void interpret(Options& o, const Texts& t) {
    o.collective = collective_of(t.collective);
    if (!t.begin.empty()) o.begin_bytes = *command_line::parse_bytes(t.begin);
    if (!t.end.empty()) o.end_bytes = *command_line::parse_bytes(t.end);
    if (t.end.empty()) o.end_bytes = std::max(o.begin_bytes, o.end_bytes);
    if (t.begin.empty()) o.begin_bytes = std::min(o.begin_bytes, o.end_bytes);
    if (o.end_bytes < o.begin_bytes)
        throw CLI::ValidationError(
            "--end",
            command_line::with_advice("the largest size is smaller than the smallest (--begin)",
                                      "give an --end that is not below --begin"));
    if (o.root >= o.ranks)
        throw CLI::ValidationError(
            "--root",
            command_line::with_advice(fmt::format("rank {} is out of range", o.root),
                                      fmt::format("give a rank from 0 to {}", o.ranks - 1)));
    if (!t.dtype.empty()) o.dtype = dtype_of(t.dtype);
    check_files(o);
    o.algorithms = algorithms_of(o, t.algorithm);
    interpret_network(o, t);
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
    Parsed parsed;
    Texts texts;
    CLI::App app(description, "tutti-sim");
    command_line::dress(app, "tutti-sim COLLECTIVE --ranks N [OPTIONS]", footer, version());
    add_what(app, parsed.options, texts);
    add_network(app, parsed.options, texts);
    add_report(app, parsed.options);
    parsed.exit_code =
        command_line::parse(app, argc, argv, [&] { interpret(parsed.options, texts); });
    return parsed;
}

std::vector<uint64_t> sizes_of(const Options& o) {
    if (o.collective == Collective::barrier) return {0};
    std::vector<uint64_t> sizes;
    for (uint64_t bytes = o.begin_bytes;; bytes = bytes == 0 ? 1 : bytes * o.factor) {
        sizes.push_back(bytes);
        if (bytes > o.end_bytes / o.factor && bytes != 0) break;
        if (o.end_bytes == 0) break;
    }
    return sizes;
}

}  // namespace tutti::sim
