#include "options.h"

#include <algorithm>

#include "base/version.h"
#include "bench/command_line.h"
#include "tools/dtype_option.h"

namespace tutti::tune {
namespace {

constexpr const char* description =
    R"(tutti-tune - measure the algorithms on this machine, and write the fastest to a tuning file

Every rank runs this program. For each collective and size, all algorithms run in turns, in short
blocks, so that a slow phase of the machine affects all of them. Rank 0 prints the fastest algorithm,
tutti's own choice and the ratio of their times. With --output it writes a tuning file, which
TUTTI_TUNING can name: constants for the cost model, and choices of algorithms. Lines of an existing
file that this run did not measure (other transports, numbers of ranks, collectives, widths of sums
and machines) stay, behind the new lines. If two lines match a call, the library uses the first.)";

constexpr const char* footer = R"(EXIT CODES
  0  tutti-tune has measured, and written the files that were asked for
  1  an operation failed, or tutti-tune could not write a file
  2  wrong usage

EXAMPLES
  tutti-run -n 2 tutti-tune --output here.tuning
  tutti-run -n 4 --transport tcp tutti-tune --output here.tuning --seconds 120
  tutti-run -n 4 tutti-tune --output here.tuning --dtype bfloat16 --collectives allreduce,reduce_scatter
  tutti-run -n 8 --hosts-act 4 tutti-tune --output here.tuning --collectives allreduce,allgather
  tutti-run -n 2 --env TUTTI_TUNING=here.tuning tutti-tune --seconds 20
  TUTTI_TUNING=here.tuning tutti-bench allreduce --ranks 2 --explain)";

std::vector<std::string> collective_names() {
    std::vector<std::string> names;
    for (const CollectiveTraits& traits : collective_traits) names.emplace_back(traits.name);
    return names;
}

void add_options(CLI::App& app, Options& o, std::vector<std::string>& names, std::string& dtype) {
    const CLI::AsSizeValue sizes(false);
    app.add_option("--collectives", names,
                   "collectives to measure (default: allreduce, broadcast, reduce, allgather, "
                   "reduce_scatter, alltoall)")
        ->type_name("LIST")
        ->delimiter(',')
        ->check(CLI::IsMember(collective_names()).description(""));
    app.add_option("-b,--begin", o.begin_bytes, "smallest size (default 8)")
        ->type_name("BYTES")
        ->transform(sizes.description(""));
    app.add_option("-e,--end", o.end_bytes, "largest size (default 64M)")
        ->type_name("BYTES")
        ->transform(sizes.description(""));
    app.add_option("-f,--factor", o.factor, "factor between one size and the next (default 8)")
        ->type_name("N")
        ->check(CLI::Range(2, 1 << 20));
    app.add_option("--seconds", o.seconds, "time to measure for, about (default 60)")
        ->type_name("S")
        ->check(command_line::positive);
    app.add_option("--dtype", dtype,
                   "element type (default float32); 16-bit and 8-bit floats are tuned separately")
        ->type_name("TYPE");
    app.add_option("--transport", o.transport, "transports to use, e.g. shm,tcp")
        ->type_name("LIST");
    app.add_option("--output", o.output, "create the tuning file FILE, or update it")
        ->type_name("FILE");
    app.add_option("--rows", o.rows, "append every measurement to FILE, one JSON object per line")
        ->type_name("FILE");
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
    Parsed parsed;
    std::vector<std::string> names{"allreduce", "broadcast",      "reduce",
                                   "allgather", "reduce_scatter", "alltoall"};
    CLI::App app(description, "tutti-tune");
    command_line::dress(app, "tutti-run -n N tutti-tune [OPTIONS]", footer, version());
    std::string dtype;
    add_options(app, parsed.options, names, dtype);
    parsed.exit_code = command_line::parse(app, argc, argv, [&] {
        if (parsed.options.begin_bytes == 0 ||
            parsed.options.begin_bytes > parsed.options.end_bytes)
            throw CLI::ValidationError(
                "--begin", command_line::with_advice(
                               parsed.options.begin_bytes == 0
                                   ? "the smallest size is 0"
                                   : "the smallest size is larger than the largest (--end)",
                               "give 1 byte or more, and not more than --end"));
        if (!dtype.empty()) parsed.options.dtype = dtype_of(dtype);
    });
    const std::vector<std::string> known = collective_names();
    for (const std::string& name : names) {
        const auto collective =
            static_cast<Collective>(std::find(known.begin(), known.end(), name) - known.begin());
        auto& chosen = parsed.options.collectives;
        if (std::find(chosen.begin(), chosen.end(), collective) == chosen.end())
            chosen.push_back(collective);
    }
    return parsed;
}

}  // namespace tutti::tune
