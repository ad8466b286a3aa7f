// A directory on this host that belongs to one job of this user, with a secret in it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace tutti {

/// The first process of the job makes the directory, and the last one that leaves removes it. A
/// process holds a shared lock on the secret's file meanwhile, so a killed process counts as having
/// left.
class JobDirectory {
public:
    /// invalid: the directory is not this user's alone. Also removes directories that killed jobs
    /// of this user left beside it.
    static Result<std::unique_ptr<JobDirectory>> open(const std::string& path, Deadline deadline);
    ~JobDirectory();
    JobDirectory(const JobDirectory&) = delete;

    const std::string& path() const { return path_; }
    const std::string& secret() const { return secret_; }

private:
    JobDirectory(std::string path, UniqueFd lock, std::string secret);
    const std::string path_;
    const UniqueFd lock_;
    const std::string secret_;
    const pid_t owner_;  // a forked child shares the lock, and must not release it
};

/// The path of a job's directory: below $XDG_RUNTIME_DIR, if that is a directory of this user's
/// alone, else below /tmp.
std::string job_directory_path(std::string_view identity);

}  // namespace tutti
