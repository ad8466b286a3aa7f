#include "os/thread.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>

namespace tutti {
namespace {

constexpr std::size_t least_stack_bytes = std::size_t{1} << 20;

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// "0::/user.slice" names the group below /sys/fs/cgroup; in a container the group is /sys/fs/cgroup
// itself.
std::string pids_of_group() {
    const std::string root = "/sys/fs/cgroup", own = first_line("/proc/self/cgroup");
    const auto name = own.rfind(':');
    for (const std::string& group :
         {name == std::string::npos ? "" : own.substr(name + 1), std::string()}) {
        const std::string most = first_line(root + group + "/pids.max");
        if (!most.empty())
            return fmt::format("{} of {}", first_line(root + group + "/pids.current"), most);
    }
    return "unknown";
}

std::string thread_limits() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NPROC, &limit);
    return fmt::format(
        "this user may have {} processes and threads (ulimit -u), and this control "
        "group has {} (pids.max)",
        limit.rlim_cur == RLIM_INFINITY ? "any number of" : std::to_string(limit.rlim_cur),
        pids_of_group());
}

void* run_body(void* data) {
    const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(data));
    (*body)();
    return nullptr;
}

}  // namespace

Result<Thread> Thread::start(std::string_view purpose, std::function<void()> body) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    std::size_t stack_bytes = 0;
    ::pthread_attr_getstacksize(&attributes, &stack_bytes);
    ::pthread_attr_setstacksize(&attributes, std::max(stack_bytes, least_stack_bytes));
    auto owned = std::make_unique<std::function<void()>>(std::move(body));
    pthread_t id{};
    const int failed = ::pthread_create(&id, &attributes, run_body, owned.get());
    ::pthread_attr_destroy(&attributes);
    if (failed == 0) {
        (void)owned.release();
        return Thread(id);
    }
    auto error = fail_errno(failed, fmt::format("cannot start {}", purpose));
    if (failed == EAGAIN) error.value().message += "; " + thread_limits();
    return error;
}

void Thread::join() {
    if (id_) ::pthread_join(*id_, nullptr);
    id_.reset();
}

void Thread::detach() {
    if (id_) ::pthread_detach(*id_);
    id_.reset();
}

}  // namespace tutti
