// Orphaned processes of the ranks, in any process group, become children of tutti-run, which ends
// them: no process of a job stays behind.
#pragma once

#include <sys/types.h>

#include <set>

#include "base/result.h"

namespace tutti::run {

class Descendants {
public:
    /// Makes this process the subreaper: from now on it inherits orphans. Its existing children,
    /// from before an exec or for its own purposes, do not count as descendants.
    static Result<Descendants> adopt();

    /// A child that has ended and not been reaped, a rank or an orphan; 0 if there is none.
    pid_t ended() const;
    /// Call it once no rank is left: kills all remaining descendants, and their children in turn.
    /// Gives up on a process that the kernel does not end within a second.
    void end() const;

private:
    explicit Descendants(std::set<pid_t> others) : others_(std::move(others)) {}
    std::set<pid_t> others_;
};

}  // namespace tutti::run
