#include "guardian.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>

namespace tutti::run {
namespace {

// Reads messages from tutti-run. A positive number is a process group to watch, a negative number a
// group to forget. 0 means that tutti-run has ended in order.
[[noreturn]] void guard(int pipe) {
    std::set<pid_t> groups;
    pid_t message = 0;
    while (true) {
        const ssize_t got = ::read(pipe, &message, sizeof message);
        if (got < 0 && errno == EINTR) continue;
        if (got != static_cast<ssize_t>(sizeof message)) break;  // tutti-run is gone
        if (message == 0) ::_exit(0);
        if (message > 0)
            groups.insert(message);
        else
            groups.erase(-message);
    }
    for (const pid_t group : groups) ::kill(-group, SIGKILL);
    ::_exit(0);
}

void leave_terminal() {
    ::setsid();  // so that the terminal's signals do not reach the guardian
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && null >= 0; ++fd) ::dup2(null, fd);
    if (null > 2) ::close(null);
}

}  // namespace

Result<Guardian> Guardian::start() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return fail_errno(errno, "cannot make a pipe for the guardian process");
    UniqueFd read_end(ends[0]);
    UniqueFd write_end(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno(errno, "cannot start the guardian process");
    if (pid == 0) {
        write_end.reset();
        leave_terminal();
        guard(read_end.get());
    }
    return Guardian(std::move(write_end), pid);
}

Guardian::~Guardian() {
    if (!pipe_) return;  // moved from
    tell(0);
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Guardian::watch(pid_t group) {
    tell(group);
}
void Guardian::forget(pid_t group) {
    tell(-group);
}

void Guardian::tell(pid_t message) {
    // An error means that the guardian was killed. The job continues without it.
    while (::write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
    }
}

}  // namespace tutti::run
