#include "options.h"

#include <fmt/core.h>

#include "base/version.h"
#include "bench/command_line.h"

namespace tutti::run {
namespace {

constexpr int max_ranks = 4096;
constexpr int max_gangs = 1'000'000;

constexpr const char* description =
    R"(tutti-run - run a program as N ranks on this machine

Starts N copies of PROGRAM, each with its rank, the number of ranks, a rendezvous store and the
job's secret in the environment (TUTTI_RANK, TUTTI_SIZE, TUTTI_STORE, TUTTI_JOB, TUTTI_SECRET).
Programs of torch.distributed find theirs: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR
and MASTER_PORT, a free port that is kept for rank 0 to listen on.
The secret is TUTTI_SECRET or what TUTTI_SECRET_FILE holds if one is set, else random.
Their output comes line by line with "[rank] " in front; lines of more than 1 MiB are cut, and a
last line is ended. The first rank that fails ends the others: SIGTERM, then SIGKILL after a grace.
What ranks have started may outlive them, but not the last rank: when that has ended, it is killed,
in sessions of its own too. When tutti-run itself is killed, so are the ranks and their process
groups. Rank 0 reads standard input unless that is a terminal.)";

constexpr const char* footer = R"(SIGNALS
  SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are handed to every rank. SIGINT and SIGTERM are to
  end the job. SIGHUP ends it only if a rank dies of it: ranks that take it as a wish to reload go
  on, and further gangs follow. After SIGTERM, or a second SIGINT, ranks that still run when the
  grace is over are killed. SIGINT and SIGHUP stay ignored, by the ranks too, where tutti-run was
  started so.

GANGS
  With --gangs and --restarts the program is run again by new ranks, with a new job name; what one
  gang leaves to the next, such as a checkpoint, is the program's affair. A signal that ends the
  job, and --timeout, end all of it.

EXIT CODES
  0        every rank exited with 0
  1 ...    that of the first rank that failed
  128+S    the first rank that failed died of signal S, or S ended the job before its last gang
  124      --timeout was reached
  125      tutti-run itself failed, or could not write output or a log (the message says why)
  126      the program cannot be executed
  127      the program was not found
  2        wrong usage

EXAMPLES
  tutti-run -n 2 ./allreduce
  tutti-run -n 4 --transport tcp python3 train.py --epochs 3
  tutti-run -n 8 --hosts-act 2 --log-dir logs tutti-bench allreduce
  tutti-run -n 4 --gangs 90 --restarts 5 ./train --epochs 90 --epochs-per-gang 1
  tutti-run -n 2 --timeout 60 --env OMP_NUM_THREADS=1 --bind ./solver input.dat

Everything after PROGRAM belongs to the program.)";

std::string check_assignment(const std::string& text) {
    const auto at = text.find('=');
    if (at == std::string::npos || at == 0) return fmt::format("'{}' is not NAME=VALUE", text);
    return {};
}

void add_options(CLI::App& app, Options& o, std::vector<std::string>& assignments) {
    app.add_option("-n,--ranks", o.ranks, "how many ranks to start")
        ->required()
        ->type_name("N")
        ->check(CLI::Range(1, max_ranks));
    app.add_flag("--keep-going", o.keep_going,
                 "let the others run on when a rank fails; its exit code is given at the end");
    app.add_option("--transport", o.transport, "transports the ranks may use, e.g. shm,tcp")
        ->type_name("LIST");
    app.add_option("--hosts-act", o.hosts_act, "act as K hosts, the ranks in blocks")
        ->type_name("K")
        ->check(CLI::Range(1, max_ranks));
    app.add_option("--gangs", o.gangs,
                   "when all ranks have ended well, start them again, K times in all")
        ->type_name("K")
        ->check(CLI::Range(1, max_gangs));
    app.add_option("--restarts", o.restarts,
                   "when a rank has failed and all have ended, start them again, K times at most")
        ->type_name("K")
        ->check(CLI::Range(0, max_gangs));
    app.add_option("--env", assignments, "set a variable for the ranks (repeatable)")
        ->type_name("NAME=VALUE")
        ->type_size(1)
        ->allow_extra_args(false)
        ->check(check_assignment);
    app.add_flag("--bind", o.bind,
                 "pin rank r to the r-th core this process may use; with more ranks than cores, "
                 "neighbours to one core");
    app.add_option("--timeout", o.timeout_s,
                   "end the whole job after so long, naming who still runs")
        ->type_name("SECONDS")
        ->check(command_line::positive);
    app.add_option("--grace", o.grace_s, "between SIGTERM and SIGKILL (default 3)")
        ->type_name("SECONDS")
        ->check(command_line::not_negative);
    app.add_flag_callback(
        "--no-prefix", [&o] { o.prefix = false; },
        "leave out \"[rank] \" and change no output; a line that is not finished is ended only "
        "where another's follows");
    app.add_option("--log-dir", o.log_dir, "also write each rank's output to DIR/rank-R.log")
        ->type_name("DIR");
    app.add_option("--store", o.store_url, "rendezvous in this store, not one of tutti-run's own")
        ->type_name("URL");
    app.add_flag("--quiet", o.quiet, "no messages of tutti-run's own about ranks that fail");
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
    Parsed parsed;
    Options& o = parsed.options;
    std::vector<std::string> assignments;
    CLI::App app(description, "tutti-run");
    command_line::dress(app, "tutti-run -n N [OPTIONS] PROGRAM [ARGUMENTS]", footer, version());
    app.prefix_command();  // the first word that is no option ends the options
    add_options(app, o, assignments);
    parsed.exit_code = command_line::parse(app, argc, argv, [&] {
        o.command = app.remaining();
        if (!o.command.empty() && o.command.front() == "--") o.command.erase(o.command.begin());
        if (o.command.empty()) throw CLI::RequiredError("PROGRAM");
        if (o.command.front().starts_with('-')) throw CLI::ExtrasError({o.command.front()});
        if (o.hosts_act > o.ranks)
            throw CLI::ValidationError(
                "--hosts-act",
                fmt::format("{} hosts need at least as many ranks, not {}", o.hosts_act, o.ranks));
    });
    if (parsed.exit_code) return parsed;
    for (const std::string& text : assignments) {
        const auto at = text.find('=');
        o.environment.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    return parsed;
}

}  // namespace tutti::run
