#include "gangs.h"

#include <fmt/format.h>

#include "job/records/newcomers.h"
#include "launcher.h"
#include "rendezvous/tcp_store.h"

namespace tutti::run {
namespace {

struct Outcome {
    int exit_code = 0;
    bool forced = false;     // true: no gang may follow
    int interrupted_by = 0;  // the signal that ended the job: no gang may follow; 0: none
};

/// Processes of this machine that wait in the store to join the job.
class WaitingProcesses {
public:
    explicit WaitingProcesses(const Job& job) : job_(job) {}

    std::vector<pid_t> find() {
        constexpr int64_t answer_ms = 1000;
        const Deadline soon = Deadline::after_ms(answer_ms);
        if (!store_) {
            auto opened = open_store({.url = job_.store_url,
                                      .job = job_.name,
                                      .secret = job_.secret,
                                      .hosted = true,
                                      .deadline = soon});
            if (!opened) return {};
            store_ = *std::move(opened);
        }
        std::vector<pid_t> found;
        NewcomerQueue queue(*store_, RankOwner::this_process(machine_id()));
        if (const auto waiting = queue.find_waiting(most_newcomers, soon))
            for (const auto& entry : *waiting) found.push_back(entry.ticket.owner.pid);
        return found;
    }

private:
    const Job& job_;
    std::unique_ptr<Store> store_;
};

Result<Outcome> run_gang(const Options& options, Console& console, Deadline deadline, bool first) {
    TUTTI_ASSIGN(UniqueFd signals, capture_signals());
    TUTTI_ASSIGN(Guardian guardian, Guardian::start());  // it forks: no thread may exist yet
    TUTTI_ASSIGN(Descendants descendants, Descendants::adopt());  // the guardian is no descendant
    TUTTI_ASSIGN(Job job, make_job(options));
    job.first_gang = first;
    std::unique_ptr<TcpStoreServer> store;
    if (job.hosts_store) {
        TUTTI_ASSIGN(store,
                     TcpStoreServer::start(
                         {.host = "127.0.0.1", .port = 0, .job = job.name, .secret = job.secret}));
        job.store_url = fmt::format("tcp://127.0.0.1:{}", store->port());
    }
    WaitingProcesses waiting(job);
    Launcher launcher(options, job, console, deadline, std::move(signals), std::move(guardian),
                      std::move(descendants), [&] { return waiting.find(); });
    const int exit_code = launcher.run();
    return Outcome{exit_code, launcher.forced() || console.broken(), launcher.interrupted_by()};
}

}  // namespace

Result<int> run_gangs(const Options& options) {
    // All gangs share the console and the deadline.
    Console console;
    const Deadline deadline = after_s(options.timeout_s);
    int failures = 0;
    for (int gang = 1;;) {
        const bool first = gang == 1 && failures == 0;
        TUTTI_ASSIGN(const Outcome outcome, run_gang(options, console, deadline, first));
        const bool well = outcome.exit_code == 0;
        const bool another = well ? gang < options.gangs : failures < options.restarts;
        if (!another || outcome.forced) return outcome.exit_code;
        if (outcome.interrupted_by != 0) return exit_signal_base + outcome.interrupted_by;
        if (well) {
            ++gang;
        } else {
            ++failures;
            if (options.quiet) continue;
            console.say(fmt::format("gang {} ended with exit code {}; starting it again, {} of {}",
                                    gang, outcome.exit_code, failures, options.restarts));
        }
    }
}

}  // namespace tutti::run
