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
    rlimit open_files{};         // this process's limit before it raised it
};

struct Spawned {
    pid_t pid = -1;
    UniqueFd out;
    UniqueFd err;
};

/// Returns once the program really runs. Code::invalid and sys_errno: exec refused; anything else:
/// no process could be made.
Result<Spawned> spawn(const SpawnRequest& request);

/// The cores that this process may run on.
std::vector<int> allowed_cores();

}  // namespace tutti::run
