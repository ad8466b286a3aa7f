#include "descendants.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "os/process.h"

namespace tutti::run {
namespace {

constexpr int patience_ms = 1'000;
constexpr useconds_t pause_us = 1'000;

std::set<pid_t> children() {
    std::set<pid_t> found;
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
    if (!processes) return found;
    while (const dirent* entry = ::readdir(processes.get())) {
        const pid_t pid = std::atoi(entry->d_name);
        if (pid > 0 && std::cmp_equal(process_field(pid, ProcessField::parent), ::getpid()))
            found.insert(pid);
    }
    return found;
}

}  // namespace

Result<Descendants> Descendants::adopt() {
    Descendants descendants(children());
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return fail_errno(errno, "cannot adopt the processes that outlive their rank");
    return descendants;
}

pid_t Descendants::ended() const {
    siginfo_t found{};
    if (::waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
    return found.si_pid;
}

void Descendants::end() const {
    const Deadline deadline = Deadline::after_ms(patience_ms);
    while (true) {
        bool any = false;
        for (const pid_t pid : children()) {
            if (others_.contains(pid)) continue;
            any = true;
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, WNOHANG);
        }
        if (!any || deadline.passed()) return;
        ::usleep(pause_us);
    }
}

}  // namespace tutti::run
