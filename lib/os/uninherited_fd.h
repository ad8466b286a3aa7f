// An owner of a file descriptor that forked children do not keep open.
#pragma once

#include "base/fd.h"

namespace tutti {

/// Peers notice the end of this process by the end of its connections, and close-on-exec is not
/// enough for that: a child that only forks, as a data loader's workers do, keeps them open after
/// it. A forked child finds these leading nowhere: to /dev/null, so that the number stays taken and
/// whoever lets go of the parent's in the child closes nothing else.
class UninheritedFd {
public:
    UninheritedFd() = default;
    explicit UninheritedFd(UniqueFd fd);
    UninheritedFd(UninheritedFd&& other) noexcept = default;
    UninheritedFd& operator=(UninheritedFd&& other) noexcept;
    ~UninheritedFd() { reset(); }

    int get() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }
    void reset();

private:
    UniqueFd fd_;
};

}  // namespace tutti
