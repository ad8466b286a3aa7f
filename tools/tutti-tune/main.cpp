// tutti-tune: measures the algorithms on this machine and writes the fastest to a tuning file.
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>

#include "bench/complain.h"
#include "file.h"
#include "measure.h"
#include "options.h"
#include "select/fit.h"
#include "tools/output.h"

namespace tutti::tune {
namespace {

constexpr double good_enough = 1.10;
constexpr double trust = 0.01;  // the weight of the old constants where measurements say little

std::string line_of(const Cell& cell) {
    const double ratio = 1 / cell.best().ratio;
    return fmt::format("{:<15} {:>10} {:>20} {:>12.2f} {:>20} {:>6.2f}{}\n",
                       collective_name(cell.collective), cell.bytes, cell.best().algorithm,
                       cell.best().us, cell.chosen, ratio, ratio <= good_enough ? "" : " *");
}

Result<> append_rows(const std::string& path, const std::vector<Cell>& cells,
                     const SelectionInput& input) {
    std::FILE* file = std::fopen(path.c_str(), "a");
    if (!file) return fail_errno(errno, fmt::format("cannot write the file '{}'", path));
    for (const Cell& cell : cells)
        for (const Time& time : cell.times)
            fmt::print(file,
                       "{{\"collective\": \"{}\", \"wire\": \"{}\", \"ranks\": {}, \"crowding\": "
                       "{}, \"bytes\": {}, \"algorithm\": \"{}\", \"us\": {:.4f}, \"ratio\": "
                       "{:.4f}, \"chosen\": {}, "
                       "\"predicted_us\": {:.4f}, \"terms\": [{}]}}\n",
                       collective_name(cell.collective), input.wire, input.ranks, input.crowding,
                       cell.bytes, time.algorithm, time.us, time.ratio,
                       time.algorithm == cell.chosen, time_us(time.terms, input.constants),
                       fmt::join(time.terms, ", "));
    if (std::fclose(file) == 0) return {};
    return fail_errno(errno, fmt::format("cannot write the file '{}'", path));
}

Constants fit_to(const std::vector<Cell>& cells, const Constants& before) {
    std::vector<Sample> samples;
    for (const Cell& cell : cells)
        for (const Time& time : cell.times)
            if (time.us > time.inner_us) samples.push_back({time.terms, time.us - time.inner_us});
    return fit(samples, before, trust);
}

Result<std::vector<Cell>> measure_all(Communicator& comm, const Options& options, Output& out) {
    std::vector<Call> calls;
    for (const Collective collective : options.collectives)
        for (const Call& call : calls_of(collective, options, comm.size())) calls.push_back(call);
    Bench bench(comm, options);
    const double seconds = options.seconds / static_cast<double>(calls.size());
    const bool talks = comm.rank() == 0;
    if (talks)
        out.print(fmt::format(
            "# {} ranks over {}, {}; times are medians in us; *: more than 10 % slower\n"
            "#{:<14} {:>10} {:>20} {:>12} {:>20} {:>6}\n",
            comm.size(), comm.planner().selection_input().wire, dtype_name(options.dtype),
            "collective", "bytes", "fastest", "us", "tutti's choice", "ratio"));
    std::vector<Cell> cells;
    for (const Call& call : calls) {
        TUTTI_ASSIGN(Cell cell, bench.measure(call, seconds));
        if (talks) out.print(line_of(cell));
        cells.push_back(std::move(cell));
    }
    return cells;
}

Result<> report(const Communicator& comm, const Options& options, const std::vector<Cell>& cells,
                Output& out) {
    std::size_t good = 0;
    for (const Cell& cell : cells) {
        good += 1 / cell.best().ratio <= good_enough;
    }
    out.print(fmt::format("# within 10 % of the fastest: {} of {} choices\n", good, cells.size()));
    const SelectionInput& input = comm.planner().selection_input();
    if (!options.rows.empty()) TUTTI_TRY(append_rows(options.rows, cells, input));
    if (!options.output.empty()) {
        TUTTI_ASSIGN(const Reducer sum, Reducer::make(options.dtype, Op::sum));
        TUTTI_TRY(write_tuning(
            options.output,
            {input.wire, input.ranks, fit_to(cells, input.constants), cells, sum.widening()}));
    }
    return out.written("the table");  // last: the file is written even if the output fails
}

Result<> run(const Options& options) {
    TUTTI_ASSIGN(Config config, config_of_process());
    TUTTI_TRY(check_whole(config));
    if (config.size < 2)
        return fail(Code::invalid, "tutti-tune measures two ranks or more, and this job has one")
            .advice("start it with tutti-run -n N tutti-tune …");
    if (!options.transport.empty()) TUTTI_TRY(set_config(config, "transport", options.transport));
    // Refuse files that cannot be written before measuring, not after.
    if (config.rank == 0 && !options.output.empty()) TUTTI_TRY(check_tuning(options.output));
    if (config.rank == 0 && !options.rows.empty()) TUTTI_TRY(append_rows(options.rows, {}, {}));
    TUTTI_ASSIGN(const auto comm, Communicator::create(config, nullptr));
    Output out(stdout);
    auto cells = measure_all(*comm, options, out);
    auto done = cells && comm->rank() == 0 ? report(*comm, options, *cells, out) : Result<>{};
    comm->destroy();
    return cells ? done : Result<>(tl::unexpected(std::move(cells).error()));
}

}  // namespace
}  // namespace tutti::tune

int main(int argc, char** argv) {
    try {
        const auto parsed = tutti::tune::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        const auto done = tutti::tune::run(parsed.options);
        if (done) return 0;
        command_line::complain("tutti-tune", error_text(done.error()));
    } catch (const std::exception& error) {
        command_line::complain("tutti-tune", error.what());
    }
    return tutti::tune::exit_failed;
}
