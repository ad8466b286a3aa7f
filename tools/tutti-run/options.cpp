#include "options.h"

#include <fmt/core.h>

#include <utility>

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
For torch.distributed it also sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT, a free port that tutti-run reserves for rank 0 to listen on.
The secret is TUTTI_SECRET, or the contents of TUTTI_SECRET_FILE, or random if neither is set.
tutti-run prints the output of the ranks line by line with "[rank] " in front. It cuts lines of more
than 1 MiB, and ends an unfinished last line. When a rank fails, tutti-run ends the other ranks with
SIGTERM, and with SIGKILL after a grace period. A process that a rank has started may outlive that
rank. When the last rank has ended, tutti-run kills all such processes, also in other sessions. If
tutti-run itself is killed, the ranks and their process groups are killed too. Rank 0 reads standard
input unless that is a terminal.)";

constexpr const char* footer = R"(SIGNALS
  tutti-run passes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 to every rank. SIGINT and SIGTERM
  end the job. SIGHUP ends it only if a rank dies of it: ranks that reload on SIGHUP continue, and
  further gangs follow. After SIGTERM, or a second SIGINT, tutti-run kills the ranks that still run
  when the grace period is over. If SIGINT or SIGHUP was ignored when tutti-run started, tutti-run
  and the ranks ignore it too.

GANGS
  A gang is one run of all ranks. With --gangs and --restarts, tutti-run starts the program again
  with new ranks and a new job name. The program itself has to pass data from one gang to the next,
  for example in a checkpoint. --timeout, and a signal that ends the job, end all gangs.

ELASTIC JOBS
  With --elastic MIN:MAX the job goes on when a rank fails, as long as MIN ranks live. tutti-run
  starts a new process for it, so that MAX live. A new process has TUTTI_JOIN=1, no rank, and the
  next free number in the prefix: the job's ranks take it in with tutti_comm_grow. After a rank has
  exited with 0, tutti-run starts no more, and ends those that still wait to join. The failures of
  replaced ranks do not count for the exit code.

EXIT CODES
  0        every rank exited with 0
  1 ...    the exit code of the first rank that failed
  128+S    signal S killed the first rank that failed, or ended the job before its last gang
  124      --timeout was reached
  125      tutti-run itself failed, or could not write output or a log (the message has the reason)
  126      the program cannot be executed
  127      the program was not found
  2        wrong usage

EXAMPLES
  tutti-run -n 2 ./allreduce
  tutti-run -n 4 --transport tcp python3 train.py --epochs 3
  tutti-run -n 8 --hosts-act 2 --log-dir logs tutti-bench allreduce
  tutti-run -n 4 --gangs 90 --restarts 5 ./train --epochs 90 --epochs-per-gang 1
  tutti-run --elastic 2:4 ./train --recover
  tutti-run -n 2 --timeout 60 --env OMP_NUM_THREADS=1 --bind ./solver input.dat

Everything after PROGRAM belongs to the program.)";

std::string check_assignment(const std::string& text) {
    const auto at = text.find('=');
    if (at == std::string::npos || at == 0)
        return command_line::with_advice(fmt::format("'{}' is not NAME=VALUE", text),
                                         "give a variable's name, = and its value");
    return {};
}

/// "2:4"; nullopt: malformed.
std::optional<Elastic> parse_elastic(const std::string& text) {
    const auto colon = text.find(':');
    if (colon == std::string::npos) return std::nullopt;
    Elastic range;
    if (!CLI::detail::lexical_cast(text.substr(0, colon), range.least) ||
        !CLI::detail::lexical_cast(text.substr(colon + 1), range.most))
        return std::nullopt;
    const bool sound = range.least >= 1 && range.least <= range.most && range.most <= max_ranks;
    return sound ? std::optional(range) : std::nullopt;
}

void read_elastic(const std::string& text, bool restarts_given, Options& o) {
    if (text.empty()) {
        if (o.ranks == 0) throw CLI::RequiredError("--ranks");
        return;
    }
    o.elastic = parse_elastic(text);
    const auto refuse = [](std::string problem, std::string advice) {
        throw CLI::ValidationError("--elastic", command_line::with_advice(problem, advice));
    };
    if (!o.elastic)
        refuse(fmt::format("'{}' is not MIN:MAX", text),
               fmt::format("give two numbers from 1 to {}, the smaller one first", max_ranks));
    if (o.ranks == 0) o.ranks = o.elastic->most;
    if (o.ranks < o.elastic->least || o.ranks > o.elastic->most)
        refuse(fmt::format("{} ranks are not between {} and {}", o.ranks, o.elastic->least,
                           o.elastic->most),
               "leave out -n");
    if (o.gangs > 1) refuse("it excludes --gangs", "leave out one of them");
    if (!o.store_url.empty()) refuse("it excludes --store", "leave out one of them");
    if (o.keep_going) refuse("it includes --keep-going", "leave that out");
    if (restarts_given) o.elastic->newcomers = std::exchange(o.restarts, 0);
}

void add_options(CLI::App& app, Options& o, std::string& elastic,
                 std::vector<std::string>& assignments) {
    app.add_option("-n,--ranks", o.ranks,
                   "the number of ranks to start (with --elastic: MAX, unless given)")
        ->type_name("N")
        ->check(CLI::Range(1, max_ranks));
    app.add_flag("--keep-going", o.keep_going,
                 "let the other ranks run on when a rank fails, and exit with that rank's code");
    app.add_option("--transport", o.transport, "transports that the ranks may use, e.g. shm,tcp")
        ->type_name("LIST");
    app.add_option("--hosts-act", o.hosts_act, "act as K hosts, each with a block of the ranks")
        ->type_name("K")
        ->check(CLI::Range(1, max_ranks));
    app.add_option("--gangs", o.gangs,
                   "start all ranks again when they have exited with 0, K times in total")
        ->type_name("K")
        ->check(CLI::Range(1, max_gangs));
    app.add_option("--restarts", o.restarts,
                   "start all ranks again after a rank has failed, at most K times (with "
                   "--elastic: start at most K new processes; default 1000)")
        ->type_name("K")
        ->check(CLI::Range(0, max_gangs));
    app.add_option("--elastic", elastic,
                   "go on with at least MIN ranks, and start new processes up to MAX that join")
        ->type_name("MIN:MAX");
    app.add_option("--env", assignments, "set a variable for the ranks (repeatable)")
        ->type_name("NAME=VALUE")
        ->type_size(1)
        ->allow_extra_args(false)
        ->check(check_assignment);
    app.add_flag("--bind", o.bind,
                 "pin rank r to the r-th core that this process may use; with more ranks than "
                 "cores, neighbouring ranks share a core");
    app.add_option("--timeout", o.timeout_s,
                   "end the whole job after this time, and name the ranks that still run")
        ->type_name("SECONDS")
        ->check(command_line::positive);
    app.add_option("--grace", o.grace_s, "time between SIGTERM and SIGKILL (default 3)")
        ->type_name("SECONDS")
        ->check(command_line::not_negative);
    app.add_flag_callback(
        "--no-prefix", [&o] { o.prefix = false; },
        "print the output without \"[rank] \" and unchanged; end an unfinished line only before "
        "output of another rank");
    app.add_option("--log-dir", o.log_dir, "also write each rank's output to DIR/rank-R.log")
        ->type_name("DIR");
    app.add_option("--store", o.store_url,
                   "use this rendezvous store instead of a store in tutti-run")
        ->type_name("URL");
    app.add_flag("--quiet", o.quiet, "print no messages about ranks that fail");
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
    Parsed parsed;
    Options& o = parsed.options;
    std::string elastic;
    std::vector<std::string> assignments;
    CLI::App app(description, "tutti-run");
    command_line::dress(app, "tutti-run -n N [OPTIONS] PROGRAM [ARGUMENTS]", footer, version());
    app.prefix_command();  // the first word that is no option ends the options
    add_options(app, o, elastic, assignments);
    parsed.exit_code = command_line::parse(app, argc, argv, [&] {
        read_elastic(elastic, app.count("--restarts") > 0, o);
        o.command = app.remaining();
        if (!o.command.empty() && o.command.front() == "--") o.command.erase(o.command.begin());
        if (o.command.empty()) throw CLI::RequiredError("PROGRAM");
        if (o.command.front().starts_with('-')) throw CLI::ExtrasError({o.command.front()});
        if (o.hosts_act > o.ranks)
            throw CLI::ValidationError(
                "--hosts-act",
                command_line::with_advice(
                    fmt::format("{} hosts are more than {} ranks", o.hosts_act, o.ranks),
                    "give at most one host for each rank"));
    });
    if (parsed.exit_code) return parsed;
    for (const std::string& text : assignments) {
        const auto at = text.find('=');
        o.environment.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    return parsed;
}

}  // namespace tutti::run
