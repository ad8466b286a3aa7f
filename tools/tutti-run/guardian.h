// A small process that outlives tutti-run by a moment. If tutti-run dies without an orderly end
// (kill -9), the guardian kills the ranks' process groups. The kernel kills the ranks themselves at
// their parent's death; the guardian kills the ranks' children.
#pragma once

#include <sys/types.h>

#include "base/fd.h"
#include "base/result.h"

namespace tutti::run {

class Guardian {
public:
    static Result<Guardian> start();
    Guardian(Guardian&&) = default;
    Guardian& operator=(Guardian&&) = default;
    ~Guardian();

    /// Until forget(), the guardian kills the group if tutti-run dies.
    void watch(pid_t group);
    void forget(pid_t group);

private:
    Guardian(UniqueFd pipe, pid_t pid) : pipe_(std::move(pipe)), pid_(pid) {}
    void tell(pid_t message);
    UniqueFd pipe_;
    pid_t pid_;
};

}  // namespace tutti::run
