#include "os/uninherited_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {
namespace {

struct InheritableFds {
    std::mutex mutex;
    std::vector<int> fds;
    int nowhere = -1;
};

/// Never destroyed: a process may fork after its static objects are destroyed.
InheritableFds& inheritable_fds() {
    static InheritableFds& one = *new InheritableFds;
    return one;
}

// Runs in the child, where only functions that are safe after fork() may be called.
void forget_parents() {
    InheritableFds& all = inheritable_fds();
    for (const int fd : all.fds)
        if (all.nowhere < 0 || ::dup3(all.nowhere, fd, O_CLOEXEC) < 0) ::close(fd);
    all.fds.clear();
    all.mutex.unlock();
}

void watch_forks() {
    static const int watching =
        pthread_atfork([] { inheritable_fds().mutex.lock(); },
                       [] { inheritable_fds().mutex.unlock(); }, forget_parents);
    static_cast<void>(watching);
}

}  // namespace

UninheritedFd::UninheritedFd(UniqueFd fd) : fd_(std::move(fd)) {
    if (!fd_) return;
    watch_forks();
    InheritableFds& all = inheritable_fds();
    const std::lock_guard lock(all.mutex);
    if (all.nowhere < 0) all.nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    all.fds.push_back(fd_.get());
}

UninheritedFd& UninheritedFd::operator=(UninheritedFd&& other) noexcept {
    reset();
    fd_ = std::move(other.fd_);
    return *this;
}

void UninheritedFd::reset() {
    if (!fd_) return;
    InheritableFds& all = inheritable_fds();
    const std::lock_guard lock(all.mutex);
    // In a forked child the list is empty.
    const auto found = std::find(all.fds.begin(), all.fds.end(), fd_.get());
    if (found != all.fds.end()) all.fds.erase(found);
    fd_.reset();
}

}  // namespace tutti
