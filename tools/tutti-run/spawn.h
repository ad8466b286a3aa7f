// Starts one rank: its own process group, pipes for its output; it dies with tutti-run.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tutti::run {

struct SpawnRequest {
    std::vector<std::string> command;
    std::vector<std::string> environment;
    bool inherit_stdin = false;  // else /dev/null
    std::optional<int> core;     // pin to it
    rlimit open_files{};         // tutti-run's own limit before it raised that
};

struct Spawned {
    pid_t pid = -1;
    UniqueFd out;
    UniqueFd err;
};

/// Returns when exec has succeeded or failed. Code::invalid with sys_errno: exec failed. Any other
/// code: no process could be made.
Result<Spawned> spawn(const SpawnRequest& request);

/// The cores that this process may run on.
std::vector<int> allowed_cores();

}  // namespace tutti::run
