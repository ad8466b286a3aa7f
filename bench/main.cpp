// tutti-bench: measures and checks a collective operation.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>

#include "complain.h"
#include "measure.h"
#include "relaunch.h"
#include "report.h"

namespace bench {
namespace {

// Only rank 0 prints an error that all ranks know, and only rank 0 exits with a failure: a launcher
// ends all ranks when one rank fails, perhaps before rank 0 has printed.
int wrong_usage(int rank, const std::string& why) {
    if (rank != 0) return 0;
    command_line::complain("tutti-bench", why);
    return exit_usage;
}

// Every rank goes through the same loops; only rank 0 has a report and a progress line.
class Sweep {
public:
    Sweep(const Options& options, Seat seat)
        : options_(options), ranks_(seat.ranks), progress_(steps()) {
        if (seat.rank == 0) report_.emplace(options);
    }

    void run(tutti::Communicator& comm, int nrings) {
        comm_ = &comm;
        Measurement measurement = prepare(comm);
        for (const std::string& algorithm : options_.algorithms) {
            if (report_) report_->begin_table({comm.size(), nrings, algorithm});
            for (const Call& call : calls(algorithm)) measure(measurement, call);
        }
    }

    /// The exit code. All ranks know of wrong elements, but only the rank that writes the report
    /// exits with a failure: a launcher ends the other ranks when one rank fails.
    int finish() {
        if (!report_) return 0;
        progress_.clear();
        if (measured_ == 0) return wrong_usage(0, "nothing was measured: " + skipped_);
        report_->finish();
        return wrong_ == 0 ? 0 : exit_wrong;
    }

private:
    std::vector<Call> calls(const std::string& algorithm) const {
        Call call{.collective = options_.collective, .root = options_.root, .algorithm = algorithm};
        if (!options_.collective->moves_data()) return {call};
        std::vector<Call> list;
        for (const tutti_dtype dtype : options_.dtypes) {
            call.dtype = dtype;
            for (const tutti_op op : ops(dtype)) {
                call.op = op;
                for (const std::size_t count :
                     sweep_counts(options_, tutti_dtype_size(dtype), ranks_)) {
                    call.count = count;
                    list.push_back(call);
                }
            }
        }
        return list;
    }

    std::vector<tutti_op> ops(tutti_dtype dtype) const {
        if (!options_.collective->reduces()) return {TUTTI_SUM};
        std::vector<tutti_op> list;
        for (const tutti_op op : options_.ops)
            if (op_fits(*options_.collective, op, dtype)) list.push_back(op);
        return list;
    }

    std::size_t steps() const {
        return options_.nrings.size() * options_.algorithms.size() * calls("").size();
    }

    std::size_t max_bytes() const {
        std::size_t bytes = 0;
        for (const Call& call : calls("")) bytes = std::max(bytes, bytes_of(call, ranks_));
        return bytes;
    }

    Measurement prepare(tutti::Communicator& comm) const {
        const std::size_t bytes = max_bytes();
        try {
            return Measurement(comm, options_, bytes);
        } catch (const std::bad_alloc&) {
            throw std::runtime_error(command_line::with_advice(
                fmt::format("no memory for buffers of {} bytes", bytes), "give a smaller --end"));
        }
    }

    void measure(Measurement& measurement, const Call& call) {
        Row row{.call = call, .algorithm = call.algorithm};
        const Collective& c = *call.collective;
        row.bytes = bytes_of(call, ranks_);
        if (report_) progress_.step(fmt::format("{} bytes", row.bytes));
        try {
            if (options_.out_of_place && c.moves_data() && !c.always_in_place)
                row.out_of_place = measured(measurement, call, false);
            if (options_.in_place || !c.moves_data())
                row.in_place = measured(measurement, call, true);
        } catch (const tutti::Error& error) {
            if (error.status() != TUTTI_ERR_UNSUPPORTED || call.algorithm.empty()) throw;
            // Print an error once for successive sizes that the library refuses with the same text.
            if (report_ && skipped_ != error.what())
                report_->note(fmt::format("{} bytes: {}", row.bytes, error.what()));
            skipped_ = error.what();
            return;
        }
        if (report_) show(row);
    }

    Outcome measured(Measurement& measurement, const Call& call, bool in_place) {
        const Outcome outcome = measurement.measure(call, in_place);
        wrong_ += outcome.wrong;
        ++measured_;
        return outcome;
    }

    void show(Row& row) {
        const Call& call = row.call;
        if (row.algorithm.empty()) {
            const char* name = tutti_comm_algorithm(comm_->get(), call.collective->name, call.count,
                                                    call.dtype, call.op);
            row.algorithm = name != nullptr ? name : "default";
        }
        progress_.clear();
        report_->add(row);
        if (options_.explain) explain(call);
    }

    void explain(const Call& call) {
        std::array<char, 4096> text{};
        tutti::check(tutti_comm_explain(comm_->get(), call.collective->name, call.count, call.dtype,
                                        call.op, text.data(), text.size()));
        std::istringstream lines(text.data());
        for (std::string line; std::getline(lines, line);) report_->note("  " + line);
    }

    const Options& options_;
    int ranks_;
    Progress progress_;
    std::optional<Report> report_;
    tutti::Communicator* comm_ = nullptr;
    uint64_t wrong_ = 0;
    int measured_ = 0;
    // The reason why the last size was skipped.
    std::string skipped_ = command_line::with_advice("none of the operators fits the dtypes",
                                                     "give another --op or --dtype");
};

tutti::Communicator create(const Options& options, int nrings) {
    tutti::Config config;
    if (!options.transport.empty()) config.set("transport", options.transport);
    if (nrings > 0) config.set("nrings", std::to_string(nrings));
    return tutti::Communicator(config);
}

int run(const Options& options) {
    std::optional<Sweep> sweep;
    for (const int nrings : options.nrings) {
        tutti::Communicator comm = create(options, nrings);
        if (options.root >= comm.size())
            return wrong_usage(comm.rank(),
                               command_line::with_advice(
                                   fmt::format("--root: rank {} is out of range", options.root),
                                   fmt::format("give a rank from 0 to {}", comm.size() - 1)));
        if (!sweep) sweep.emplace(options, Seat{comm.rank(), comm.size()});
        sweep->run(comm, nrings);
    }
    return sweep->finish();
}

// The library's errors name the rank already.
std::string named(std::string_view why) {
    const char* rank = std::getenv("TUTTI_RANK");
    return rank == nullptr || why.starts_with("rank ") ? std::string(why)
                                                       : fmt::format("rank {}: {}", rank, why);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    try {
        const bench::Parsed parsed = bench::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        if (parsed.options.ranks > 0) return bench::relaunch(parsed.options.ranks, argc, argv);
        return bench::run(parsed.options);
    } catch (const std::exception& error) {
        command_line::complain("tutti-bench", bench::named(error.what()));
        return bench::exit_wrong;
    }
}
