#include "spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace tutti::run {
namespace {

struct Pipe {
    UniqueFd read_end;
    UniqueFd write_end;
};

Result<Pipe> make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe for a rank");
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
    list.push_back(nullptr);
    return list;
}

// All that the child needs, made before the fork: this process has threads (the store), so between
// fork and exec only async-signal-safe calls are allowed.
struct ChildPlan {
    std::vector<char*> arguments;
    std::vector<char*> environment;
    int input = -1;
    int out = -1;
    int err = -1;
    int status = -1;  // the child writes errno to it if exec fails
    pid_t parent = 0;
    const SpawnRequest* request = nullptr;
};

void reset_signals() {
    // SIGHUP and SIGINT keep the inherited disposition: if nohup, or a shell for background jobs,
    // ignores them, the ranks ignore them too.
    for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void run_child(ChildPlan& plan) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(1);  // tutti-run died before prctl took effect
    ::dup2(plan.input, STDIN_FILENO);
    ::dup2(plan.out, STDOUT_FILENO);
    ::dup2(plan.err, STDERR_FILENO);
    if (plan.request->core) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(static_cast<std::size_t>(*plan.request->core), &cores);
        ::sched_setaffinity(0, sizeof cores, &cores);
    }
    ::setrlimit(RLIMIT_NOFILE, &plan.request->open_files);
    reset_signals();
    environ = plan.environment.data();  // execvp searches the rank's PATH, not tutti-run's
    ::execvp(plan.arguments[0], plan.arguments.data());
    const int cause = errno;
    [[maybe_unused]] const ssize_t written = ::write(plan.status, &cause, sizeof cause);
    ::_exit(1);
}

// The errno of a failed exec, 0 once the program runs (the pipe closes on exec).
int wait_for_exec(int status) {
    int cause = 0;
    ssize_t got = 0;
    do {
        got = ::read(status, &cause, sizeof cause);
    } while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(sizeof cause) ? cause : 0;
}

void reap(pid_t pid) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

Result<UniqueFd> open_input(const SpawnRequest& request) {
    // A duplicate, as dup2 of a descriptor onto itself would keep its close-on-exec flag.
    const int fd = request.inherit_stdin ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                         : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno(errno, "cannot open standard input for a rank");
    return UniqueFd(fd);
}

}  // namespace

Result<Spawned> spawn(const SpawnRequest& request) {
    TUTTI_ASSIGN(Pipe out, make_pipe());
    TUTTI_ASSIGN(Pipe err, make_pipe());
    TUTTI_ASSIGN(Pipe status, make_pipe());
    TUTTI_ASSIGN(UniqueFd input, open_input(request));
    ChildPlan plan{.arguments = pointers(request.command),
                   .environment = pointers(request.environment),
                   .input = input.get(),
                   .out = out.write_end.get(),
                   .err = err.write_end.get(),
                   .status = status.write_end.get(),
                   .parent = ::getpid(),
                   .request = &request};
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno(errno, "cannot start a process for a rank");
    if (pid == 0) run_child(plan);
    ::setpgid(pid, pid);  // the child does the same; whichever is first takes effect
    status.write_end.reset();
    if (const int cause = wait_for_exec(status.read_end.get()); cause != 0) {
        reap(pid);
        return tl::unexpected<Error>(Error{Code::invalid, nobody, cause, request.command[0]});
    }
    return Spawned{pid, std::move(out.read_end), std::move(err.read_end)};
}

std::vector<int> allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
    return cores;
}

}  // namespace tutti::run
