#include "wait/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

Result<UniqueFd> make_event_fd(bool rings) {
    UniqueFd fd(::eventfd(rings ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (fd) return fd;
    const bool used_up = errno == EMFILE || errno == ENFILE;
    auto failed = fail_errno(errno, "cannot make an eventfd");
    if (used_up) return failed;
    return std::move(failed).advice(
        "allow the system call eventfd2 in the container's seccomp filter");
}

void ring_event_fd(int fd) {
    const uint64_t one = 1;
    while (fd >= 0 && ::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void drain_event_fd(int fd) {
    uint64_t rung = 0;
    while (::read(fd, &rung, sizeof rung) > 0) {
    }
}

}  // namespace tutti
