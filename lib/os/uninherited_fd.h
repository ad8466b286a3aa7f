// An owner of a file descriptor that forked children do not keep open.
#pragma once

#include "base/fd.h"

namespace tutti {

/// Peers notice the end of this process by the end of its connections. Close-on-exec is not enough
/// for that: a child that only forks, such as a data loader's worker, keeps the connections open.
/// In a forked child these descriptors lead to /dev/null: the number stays in use, so that closing
/// the parent's descriptor in the child closes no other file.
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
