// tutti-sim: simulates the algorithms of a collective on a network that the options describe.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "bench/complain.h"
#include "collectives/catalog.h"
#include "experiment.h"
#include "options.h"
#include "plot.h"
#include "proof/timeline.h"
#include "report.h"
#include "tools/output.h"
#include "units.h"

namespace tutti::sim {
namespace {

// The most lines in a drawing: readers and viewers cannot handle more.
constexpr std::size_t most_drawn = 200'000;

Experiment experiment_of(const Options& o, uint64_t bytes, std::string_view algorithm) {
    return {.collective = o.collective,
            .ranks = o.ranks,
            .root = o.root,
            .bytes = bytes,
            .dtype = o.dtype,
            .algorithm = algorithm,
            .lanes = o.lanes,
            .network = o.network};
}

// Checks before the simulation, without opening the file, whether write_file may write it. Opening
// would create the file, and the reader of a pipe would see its end.
Result<> check_writable(const std::string& name) {
    if (name.empty() || name == "-") return {};
    std::error_code unknown;
    const auto status = std::filesystem::status(name, unknown);
    const auto doing = fmt::format("cannot write {}", name);
    if (std::filesystem::is_directory(status)) return fail_errno(EISDIR, doing);
    const bool there = status.type() != std::filesystem::file_type::not_found;
    const auto folder = std::filesystem::absolute(name).parent_path();
    if (::access(there ? name.c_str() : folder.c_str(), W_OK) != 0) return fail_errno(errno, doing);
    return {};
}

Result<> write_file(const std::string& name, const std::string& text) {
    const bool standard = name == "-";
    std::FILE* file = standard ? stdout : std::fopen(name.c_str(), "we");
    const auto doing = fmt::format("cannot write {}", standard ? "standard output" : name);
    if (!file) return fail_errno(errno, doing);
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const int error = errno;
    const bool closed = (standard ? std::fflush(file) : std::fclose(file)) == 0;
    if (!written || !closed) return fail_errno(written ? errno : error, doing);
    return {};
}

Result<Table> simulate_table(const Options& o, const std::string& name) {
    Table table;
    table.algorithm = name;
    const Algorithm& algorithm = *find_algorithm(o.collective, name);
    table.summary = algorithm.summary;
    table.steps = growth_name(algorithm.steps);
    for (const uint64_t bytes : sizes_of(o)) {
        TUTTI_ASSIGN(const Choice chosen, choose(experiment_of(o, bytes, "")));
        auto outcome = run(experiment_of(o, bytes, name));
        if (!outcome && outcome.error().code == Code::unsupported) {
            table.refusal = outcome.error().message;
            return table;
        }
        if (!outcome) return wrap(outcome.error(), name);
        const bool repeated = !table.rows.empty() && table.rows.back().bytes == outcome->bytes;
        if (repeated) continue;  // two sizes were rounded down to the same bytes
        table.rows.push_back(row_of(*outcome, chosen.name == name));
        table.reports.push_back(std::move(outcome->report));
    }
    return table;
}

Result<> draw(const Options& o) {
    const std::string wanted = o.algorithms.size() == 1 ? o.algorithms.front() : "";
    Experiment experiment = experiment_of(o, sizes_of(o).back(), wanted);
    experiment.record = true;
    TUTTI_ASSIGN(const Outcome outcome, run(experiment));
    const std::size_t things = outcome.report.flights.size() + outcome.report.work.size();
    if (things > most_drawn)
        return fail(Code::invalid, "--draw: {} messages are too many for a picture",
                    outcome.report.flights.size())
            .advice("give fewer ranks (--ranks) or a smaller size (--end)");
    const std::string title =
        fmt::format("{} {} of {} bytes, {} on {}: {} us", outcome.choice.name,
                    collective_name(o.collective), outcome.bytes, plural(o.ranks, "rank"),
                    plural(o.network.hosts, "host"), format_us(microseconds(outcome.report.time)));
    return write_file(o.draw, draw_timeline(outcome.report, title));
}

Result<> plot(const Options& o, const std::vector<Table>& tables) {
    std::vector<Curve> curves;
    for (const Table& table : tables) {
        if (table.rows.empty()) continue;
        Curve& curve = curves.emplace_back(Curve{table.algorithm, {}});
        for (const Row& row : table.rows) curve.points.push_back({row.bytes, row.us, row.chosen});
    }
    const Network& n = o.network;
    std::string title = fmt::format(
        "{}, {} on {}, {}, latency {:g} us", collective_name(o.collective), plural(o.ranks, "rank"),
        plural(n.hosts, "host"), format_bits_per_s(n.wire.bytes_per_s), n.wire.latency_us);
    if (n.switches > 1)
        title += fmt::format(", {} oversubscribed {:g} times", plural(n.switches, "switch"),
                             n.oversubscription);
    return write_file(o.plot, draw_plot(curves, title, "the library's choice"));
}

Result<> simulate_all(const Options& o) {
    for (const std::string& name : {o.json, o.draw, o.plot}) TUTTI_TRY(check_writable(name));
    // A file that goes to standard output must be alone there: the tables go to standard error.
    Output out(o.json == "-" || o.draw == "-" || o.plot == "-" ? stderr : stdout);
    out.print(heading(o));
    std::vector<Table> tables;
    for (const std::string& name : o.algorithms) {
        TUTTI_ASSIGN(Table table, simulate_table(o, name));
        out.print(format_table(table));
        if (o.json.empty()) table.reports.clear();
        tables.push_back(std::move(table));
    }
    out.print(format_choices(tables));
    TUTTI_TRY(out.written("the table"));
    if (!o.json.empty()) TUTTI_TRY(write_file(o.json, to_json(o, tables)));
    if (!o.plot.empty()) TUTTI_TRY(plot(o, tables));
    if (!o.draw.empty()) TUTTI_TRY(draw(o));
    return {};
}

}  // namespace
}  // namespace tutti::sim

int main(int argc, char** argv) {
    try {
        const tutti::sim::Parsed parsed = tutti::sim::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        const auto done = tutti::sim::simulate_all(parsed.options);
        if (done) return 0;
        command_line::complain("tutti-sim", error_text(done.error()));
    } catch (const std::exception& error) {
        command_line::complain("tutti-sim", error.what());
    }
    return tutti::sim::exit_failed;
}
