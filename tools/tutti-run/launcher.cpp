#include "launcher.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "refusal.h"

namespace tutti::run {
namespace {

// After the last rank has ended, tutti-run reads output for this time: another process may still
// hold the ranks' pipes.
constexpr int drain_ms = 1'000;
constexpr int longest_poll_ms = 60'000;
// Between two looks for processes that wait to join a job that ends.
constexpr int dismiss_ms = 200;
// Between two looks whether a job has members, and their number without any after which it ends.
constexpr int member_check_ms = 1000, most_checks_without_members = 3;

bool ignored(int signal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    return action.sa_handler == SIG_IGN;
}

rlimit raise_open_files(int ranks) {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit wanted = before;
    // Each rank needs descriptors for two streams, a log and a connection to the store.
    wanted.rlim_cur = std::min<rlim_t>(before.rlim_max,
                                       std::max<rlim_t>(before.rlim_cur, 64 + 8 * rlim_t(ranks)));
    ::setrlimit(RLIMIT_NOFILE, &wanted);
    return before;
}

// Ranks that share a core are neighbours: most algorithms send to the next rank, so the data stays
// in that core's caches.
std::size_t core_index(int rank, int ranks, std::size_t cores) {
    const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
    return n <= cores ? r : r * cores / n;
}

std::string describe(int wait_status) {
    if (WIFSIGNALED(wait_status)) {
        const int signal = WTERMSIG(wait_status);
        return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
    }
    return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

int exit_code_of(int wait_status) {
    return WIFSIGNALED(wait_status) ? exit_signal_base + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

}  // namespace

struct Launcher::RankProcess {
    int rank = 0;
    pid_t pid = -1;
    std::unique_ptr<Log> log;
    std::unique_ptr<RankStream> out;
    std::unique_ptr<RankStream> err;
    bool running = true;     // not reaped yet
    bool watched = true;     // the guardian watches its group
    bool dismissed = false;  // told to end, because the job ends before it could join
    Deadline kill_deadline;  // if so
};

struct Launcher::Ready {
    pollfd entry{};
    RankProcess* process = nullptr;
    RankStream* stream = nullptr;  // of that process
    Sink* sink = nullptr;
};

Deadline after_s(double seconds) {
    constexpr double longest_ms = 9e15;
    return Deadline::after_ms(static_cast<int64_t>(std::min(std::ceil(seconds * 1e3), longest_ms)));
}

Result<UniqueFd> capture_signals() {
    ::signal(SIGCHLD, SIG_DFL);  // if it stayed ignored, the kernel would reap the ranks
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
    // nohup, and a script that starts a background job, ignore these signals. They stay ignored.
    for (const int signal : {SIGHUP, SIGINT})
        if (!ignored(signal)) sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) return fail_errno(errno, "cannot make a signalfd");
    return fd;
}

Launcher::Launcher(const Options& options, const Job& job, Console& console, Deadline job_deadline,
                   UniqueFd signals, Guardian guardian, Descendants descendants,
                   FindWaiting find_waiting)
    : options_(options),
      job_(job),
      console_(console),
      signals_(std::move(signals)),
      guardian_(std::move(guardian)),
      descendants_(std::move(descendants)),
      find_waiting_(std::move(find_waiting)),
      open_files_(raise_open_files(options.elastic ? options.elastic->most : options.ranks)),
      cores_(allowed_cores()),
      job_deadline_(job_deadline) {}

Launcher::~Launcher() {
    for (const auto& process : processes_)
        if (process->running) ::kill(-process->pid, SIGKILL);
    ::setrlimit(RLIMIT_NOFILE, &open_files_);  // for the next gang's ranks
}

int Launcher::run() {
    if (!start_all()) end_ranks({});
    while (anything_left()) turn();
    if (forced_exit_code_) return *forced_exit_code_;
    if (first_failure_) return first_failure_->exit_code;
    if (loss_exit_code_ != 0) return loss_exit_code_;
    const bool all_written = !console_.writing();
    return all_written ? 0 : exit_signal_base + interrupted_by_;  // only a signal gives up output
}

bool Launcher::start_all() {
    const int all = options_.elastic ? options_.elastic->most : options_.ranks;
    for (int rank = 0; rank < all; ++rank) {
        if (const Result<> started = start_rank(rank); !started) {
            report_start_failure(started.error());
            return false;
        }
    }
    return true;
}

Result<> Launcher::start_rank(int rank) {
    auto process = std::make_unique<RankProcess>();
    process->rank = rank;
    TUTTI_ASSIGN(process->log, open_log(rank));
    Log* const log = process->log.get();
    SpawnRequest request{.command = options_.command,
                         .environment = rank_environment(options_, job_, rank),
                         .inherit_stdin = rank == 0 && ::isatty(STDIN_FILENO) == 0,
                         .core = {},
                         .open_files = open_files_};
    if (options_.bind && !cores_.empty())
        request.core = cores_[core_index(rank % options_.ranks, options_.ranks, cores_.size())];
    TUTTI_ASSIGN(Spawned spawned, spawn(request));
    guardian_.watch(spawned.pid);
    const std::string prefix = options_.prefix ? fmt::format("[{}] ", rank) : "";
    process->pid = spawned.pid;
    process->out =
        std::make_unique<RankStream>(std::move(spawned.out), console_.out(), prefix, log);
    process->err =
        std::make_unique<RankStream>(std::move(spawned.err), console_.error(), prefix, log);
    processes_.push_back(std::move(process));
    ++running_;
    ++started_;
    return {};
}

Result<std::unique_ptr<Log>> Launcher::open_log(int rank) const {
    if (options_.log_dir.empty()) return nullptr;
    std::error_code cause;
    std::filesystem::create_directories(options_.log_dir, cause);
    return Log::open(fmt::format("{}/rank-{}.log", options_.log_dir, rank), job_.first_gang);
}

// The job continues without a log, because the ranks' work is worth more. The user gets the error
// at once, and the exit code is not 0.
void Launcher::tell_log_failure(RankProcess& process) {
    auto error = process.log ? process.log->take_error() : std::nullopt;
    if (!error) return;
    loss_exit_code_ = exit_launcher;
    error->message += "; the job continues";
    console_.say(error_text(*error));
}

void Launcher::report_start_failure(const Error& error) {
    Refusal refusal{exit_launcher, error_text(error)};
    if (error.code == Code::invalid)
        refusal =
            explain(options_.command.front(), rank_environment(options_, job_, 0), error.sys_errno);
    forced_exit_code_ = refusal.exit_code;
    console_.say(refusal.text);
}

bool Launcher::anything_left() const {
    if (running_ > 0) return true;
    // A reader that takes no output must not delay the end of a job that was told to end.
    const bool given_up = give_up_output_ || (told_to_end() && drain_deadline_.passed());
    if (console_.writing() && !given_up) return true;
    const bool reading = std::any_of(processes_.begin(), processes_.end(), [](const auto& p) {
        return p->out->open() || p->err->open();
    });
    return reading && !drain_deadline_.passed();
}

void Launcher::turn() {
    std::vector<Ready> list = interests();
    std::vector<pollfd> entries;
    for (const Ready& ready : list) entries.push_back(ready.entry);
    if (::poll(entries.data(), entries.size(), poll_timeout_ms()) > 0)
        for (std::size_t i = 0; i < list.size(); ++i)
            if (entries[i].revents != 0) handle(list[i]);
    reap();
    forget_empty_groups();
    check_deadlines();
}

// SIGCHLD has ended the poll: it is sent for ranks and for orphans alike.
void Launcher::reap() {
    while (const pid_t pid = descendants_.ended()) {
        const auto rank = std::find_if(processes_.begin(), processes_.end(),
                                       [&](const auto& p) { return p->running && p->pid == pid; });
        if (rank != processes_.end())
            on_exit(**rank);
        else
            ::waitpid(pid, nullptr, WNOHANG);
    }
}

// The guardian watches a group after its rank has ended, as long as the group has members. Until
// then the kernel does not give the group's number to another process.
void Launcher::forget_empty_groups() {
    for (const auto& process : processes_) {
        if (!process->watched || process->running || ::kill(-process->pid, 0) == 0) continue;
        guardian_.forget(process->pid);
        process->watched = false;
    }
}

std::vector<Launcher::Ready> Launcher::interests() {
    std::vector<Ready> list;
    list.push_back({.entry = {signals_.get(), POLLIN, 0}});
    for (Sink* sink : console_.sinks())
        if (sink->wants_write()) list.push_back({.entry = {sink->fd(), POLLOUT, 0}, .sink = sink});
    for (const auto& process : processes_)
        for (RankStream* stream : {process->out.get(), process->err.get()})
            if (stream->open() && !stream->blocked())
                list.push_back({.entry = {stream->fd(), POLLIN, 0},
                                .process = process.get(),
                                .stream = stream});
    return list;
}

void Launcher::handle(const Ready& ready) {
    if (ready.stream != nullptr) {
        ready.stream->read_some();
        tell_log_failure(*ready.process);
    } else if (ready.sink != nullptr) {
        ready.sink->write_some();
        if (running_ == 0) drain_deadline_ = Deadline::after_ms(drain_ms);  // for slow readers
        if (ready.sink->broken()) on_broken(*ready.sink);
    } else {
        on_signal();
    }
}

void Launcher::on_broken(const Sink& sink) {
    const std::string why = sink.why_broken();
    // The exit code of a program that SIGPIPE ends because its reader is gone.
    const int exit_code = why.empty() ? exit_signal_base + SIGPIPE : exit_launcher;
    if (ending_) {  // the job is ending for another reason; the ranks' last output is lost
        loss_exit_code_ = exit_code;
        if (!why.empty()) say(why);
        return;
    }
    forced_exit_code_ = exit_code;
    end_ranks(why);
}

int Launcher::poll_timeout_ms() const {
    int64_t timeout_ms = job_deadline_.left_ms(longest_poll_ms);
    if (finishing_ && running_ > 0)
        timeout_ms = dismiss_deadline_.left_ms(timeout_ms);
    else if (running_ > 0 && !ending_)
        timeout_ms = member_deadline_.left_ms(timeout_ms);
    if (running_ > 0)
        timeout_ms = kill_deadline_.left_ms(timeout_ms);
    else if (!console_.writing() || told_to_end())
        timeout_ms = drain_deadline_.left_ms(timeout_ms);
    return static_cast<int>(timeout_ms);
}

void Launcher::check_deadlines() {
    if (job_deadline_.passed()) {
        job_deadline_ = {};
        on_timeout();
    }
    if (running_ > 0 && !ending_ && !finishing_ && member_deadline_.passed()) check_members();
    if (finishing_ && running_ > 0 && dismiss_deadline_.passed()) {
        dismiss_deadline_ = Deadline::after_ms(dismiss_ms);
        dismiss_waiting();
    }
    if (running_ > 0 && kill_deadline_.passed()) {
        kill_deadline_ = {};
        say(fmt::format("killed {}, still running {} s after SIGTERM", running_ranks(),
                        options_.grace_s));
        signal_ranks(SIGKILL, true);
    }
}

void Launcher::on_timeout() {
    timed_out_ = true;
    const std::string so_far = fmt::format("--timeout: after {} s ", options_.timeout_s);
    if (running_ > 0) {
        if (ending_) return;  // the job is already ending for another reason
        forced_exit_code_ = exit_timeout;
        end_ranks(so_far + "still running: " + running_ranks());
    } else if (console_.writing()) {
        if (!first_failure_ && !forced_exit_code_) forced_exit_code_ = exit_timeout;
        drain_deadline_ = Deadline::after_ms(drain_ms);  // time to report it on the other stream
        say(so_far + "a reader has still not taken all output");
    }
}

void Launcher::on_signal() {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) return;  // reap() follows
    if (signal == SIGUSR1 || signal == SIGUSR2) {
        signal_ranks(signal, false);  // not to the group: a rank's helper may have no handler
        return;
    }
    give_up_output_ = running_ == 0;
    signal_ranks(signal, true);
    if (signal == SIGHUP && running_ > 0) {
        hung_up_ = true;  // the ranks decide: a program may reload its settings
        return;
    }
    if (signal == SIGTERM || interrupted_by_ != 0) end_ranks({});
    interrupted_by_ = signal;
}

// A rank's last output comes before the message about its death: one read empties a pipe.
void Launcher::read_last_output(RankProcess& process) {
    for (RankStream* stream : {process.out.get(), process.err.get()}) {
        pollfd entry{stream->fd(), POLLIN, 0};
        if (stream->open() && !stream->blocked() && ::poll(&entry, 1, 0) > 0) stream->read_some();
    }
    tell_log_failure(process);
}

void Launcher::on_exit(RankProcess& process) {
    read_last_output(process);
    int wait_status = 0;
    pid_t reaped = 0;
    do {
        reaped = ::waitpid(process.pid, &wait_status, 0);
    } while (reaped < 0 && errno == EINTR);
    const int unknown = reaped < 0 ? errno : 0;
    process.running = false;
    if (--running_ == 0) {
        descendants_.end();  // not earlier: another rank may use what a rank left
        drain_deadline_ = Deadline::after_ms(drain_ms);
    }
    if (process.dismissed) return;
    finishing_ |= unknown == 0 && wait_status == 0 && options_.elastic;
    if (finishing_) dismiss_deadline_ = Deadline::after_ms(dismiss_ms);
    if (unknown != 0)
        on_failure(process.rank, exit_launcher,
                   fmt::format("ended with an unknown exit code: {}", std::strerror(unknown)));
    else if (wait_status != 0)
        on_failure(process.rank, exit_code_of(wait_status), describe(wait_status));
}

void Launcher::on_failure(int rank, int exit_code, const std::string& how) {
    if (hung_up_ && exit_code == exit_signal_base + SIGHUP) interrupted_by_ = SIGHUP;
    last_failure_ = Failure{rank, exit_code};
    if (may_go_on()) return replace(fmt::format("rank {} {}", rank, how));
    if (!first_failure_) first_failure_ = last_failure_;
    if (ending_) return;  // tutti-run has told the rank to end
    std::string text = fmt::format("rank {} {}", rank, how);
    if (options_.keep_going || finishing_ || running_ == 0) {
        say(text);
        return;
    }
    end_ranks(text + "; ending the other ranks");
}

// Whether the job goes on without a rank that has failed: enough members are left. A process that
// waits to join is none.
bool Launcher::may_go_on() const {
    if (!options_.elastic || ending_ || finishing_ || interrupted_by_ != 0) return false;
    return count_members() >= options_.elastic->least;
}

int Launcher::count_members() const {
    int members = running_;
    for (const pid_t pid : find_waiting_())
        if (find_by_group(pid) != nullptr) --members;
    return members;
}

// If the last members fail while new processes start, these wait for nothing.
void Launcher::check_members() {
    member_deadline_ = Deadline::after_ms(member_check_ms);
    checks_without_members_ = count_members() > 0 ? 0 : checks_without_members_ + 1;
    if (checks_without_members_ < most_checks_without_members) return;
    first_failure_ = last_failure_;
    end_ranks("no rank of the job is left that could take in the processes that wait");
}

// The process that waits may be a child of the program that was started.
Launcher::RankProcess* Launcher::find_by_group(pid_t pid) const {
    const pid_t group = ::getpgid(pid);
    for (const auto& process : processes_)
        if (process->running && process->pid == group) return process.get();
    return nullptr;
}

void Launcher::replace(const std::string& failure) {
    if (member_deadline_.never()) member_deadline_ = Deadline::after_ms(member_check_ms);
    if (started_ >= options_.elastic->most + options_.elastic->newcomers)
        return say(fmt::format("{}; {} go on", failure, running_));
    say(fmt::format("{}; {} go on, and process {} joins them", failure, running_, started_));
    if (const Result<> started = start_rank(started_); !started)
        console_.say(error_text(started.error()) + "; the job continues");
}

// The ranks do not take them in any more.
void Launcher::dismiss_waiting() {
    for (const pid_t pid : find_waiting_()) {
        RankProcess* const process = find_by_group(pid);
        if (process == nullptr || process->rank < options_.ranks) continue;
        const bool first = !std::exchange(process->dismissed, true);
        if (first) process->kill_deadline = after_s(std::max(1e-3, options_.grace_s));
        if (first || process->kill_deadline.passed())
            ::kill(-process->pid, first ? SIGTERM : SIGKILL);
    }
}

void Launcher::end_ranks(const std::string& why) {
    if (ending_) return;
    ending_ = true;
    if (!why.empty()) say(why);
    signal_ranks(SIGTERM, true);
    signal_ranks(SIGCONT, true);  // a stopped process handles SIGTERM when it continues
    kill_deadline_ = after_s(std::max(1e-3, options_.grace_s));
}

void Launcher::signal_ranks(int signal, bool whole_group) {
    for (const auto& process : processes_)
        if (process->running) ::kill(whole_group ? -process->pid : process->pid, signal);
}

void Launcher::say(const std::string& text) {
    if (!options_.quiet) console_.say(text);
}

std::string Launcher::running_ranks() const {
    std::string list = running_ == 1 ? "rank" : "ranks";
    for (const char* separator = " "; const auto& process : processes_) {
        if (!process->running) continue;
        list += fmt::format("{}{}", separator, process->rank);
        separator = ", ";
    }
    return list;
}

}  // namespace tutti::run
