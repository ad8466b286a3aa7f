// The ranks of one job from start to end, in one event loop on one thread.
#pragma once

#include <poll.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "descendants.h"
#include "environment.h"
#include "guardian.h"
#include "options.h"
#include "output.h"
#include "spawn.h"

namespace tutti::run {

/// Blocks the signals that tutti-run passes on, and returns a descriptor that reads them. Call it
/// before any thread starts, so that no thread takes a signal.
Result<UniqueFd> capture_signals();

/// The deadline in this number of seconds, of any size. 0: never.
Deadline after_s(double seconds);

class Launcher {
public:
    /// The processes that wait to join the job.
    using FindWaiting = std::function<std::vector<pid_t>()>;
    /// job_deadline: the deadline of the whole job, which may have more gangs than this one.

    Launcher(const Options& options, const Job& job, Console& console, Deadline job_deadline,
             UniqueFd signals, Guardian guardian, Descendants descendants,
             FindWaiting find_waiting);
    ~Launcher();
    Launcher(const Launcher&) = delete;

    /// Runs the job, and returns its exit code.
    int run();
    /// After run(): the signal that told the job to end; 0: none.
    int interrupted_by() const { return interrupted_by_; }
    /// After run(): whether a deadline, a failure to start or broken output ended it, and neither a
    /// signal nor the ranks.
    bool forced() const { return forced_exit_code_.has_value(); }

private:
    struct RankProcess;
    struct Ready;
    struct Failure {
        int rank = -1;
        int exit_code = 0;
    };

    Result<> start_rank(int rank);
    Result<std::unique_ptr<Log>> open_log(int rank) const;
    void tell_log_failure(RankProcess& process);
    bool start_all();
    void report_start_failure(const Error& error);

    bool anything_left() const;
    bool told_to_end() const {
        return timed_out_ || (ending_ && (interrupted_by_ != 0 || forced()));
    }
    void turn();
    std::vector<Ready> interests();
    void handle(const Ready& ready);
    void on_broken(const Sink& sink);
    int poll_timeout_ms() const;
    void check_deadlines();

    void on_timeout();
    void on_signal();
    void on_exit(RankProcess& process);
    void reap();
    void read_last_output(RankProcess& process);
    void forget_empty_groups();
    void on_failure(int rank, int exit_code, const std::string& how);
    bool may_go_on() const;
    int count_members() const;
    void check_members();
    RankProcess* find_by_group(pid_t pid) const;
    void replace(const std::string& failure);
    void dismiss_waiting();
    void end_ranks(const std::string& why);
    void signal_ranks(int signal, bool whole_group);
    void say(const std::string& text);
    std::string running_ranks() const;

    const Options& options_;
    const Job& job_;
    Console& console_;
    UniqueFd signals_;
    Guardian guardian_;
    Descendants descendants_;
    const FindWaiting find_waiting_;
    rlimit open_files_{};
    std::vector<int> cores_;
    std::vector<std::unique_ptr<RankProcess>> processes_;
    int running_ = 0;
    int started_ = 0;         // ranks of the start, and new ones
    bool finishing_ = false;  // elastic: a rank has exited with 0
    Deadline dismiss_deadline_;
    std::optional<Failure> first_failure_, last_failure_;
    Deadline member_deadline_;  // elastic: from the first new process on
    int checks_without_members_ = 0;
    std::optional<int> forced_exit_code_;
    int loss_exit_code_ = 0;  // not 0: output was lost, of a log or of a job that ends
    bool ending_ = false;
    int interrupted_by_ = 0;  // the last signal that told the job to end; 0: none
    bool hung_up_ = false;    // SIGHUP was passed on: the job ends if a rank dies of it
    bool timed_out_ = false;
    bool give_up_output_ = false;
    Deadline job_deadline_;
    Deadline kill_deadline_;
    Deadline drain_deadline_;
};

}  // namespace tutti::run
