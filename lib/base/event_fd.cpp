#include "base/event_fd.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace tutti {

Result<UniqueFd> make_event_fd() {
    UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (fd) return fd;
    const bool used_up = errno == EMFILE || errno == ENFILE;
    return fail_errno(errno, used_up ? "cannot make an eventfd: out of file descriptors (ulimit -n)"
                                     : "cannot make an eventfd (does a seccomp filter refuse it?)");
}

}  // namespace tutti
