// Orphaned processes of the ranks, in any process group, become children of tutti-run, which ends
// them: no process of a job stays behind.
#pragma once

#include <sys/types.h>

#include <set>

#include "base/result.h"

namespace tutti::run {

class Descendants {
public:
    /// From now on orphans come to this process. What is its child already, from before an exec or
    /// for a purpose of its own, is none of them.
    static Result<Descendants> adopt();

    /// A child that has ended and not been reaped, a rank or an orphan; 0 if there is none.
    pid_t ended() const;
    /// Once no rank is left: kills all that remain, and their children in turn. Bounded: what the
    /// kernel does not let go of within a second stays.
    void end() const;

private:
    explicit Descendants(std::set<pid_t> others) : others_(std::move(others)) {}
    std::set<pid_t> others_;
};

}  // namespace tutti::run
