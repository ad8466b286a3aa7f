// One job after another: the next gang of ranks once the last has ended.
#pragma once

#include "base/result.h"
#include "options.h"

namespace tutti::run {

/// Returns the exit code of all, after options.gangs successful gangs, or after a failed gang that
/// may not be restarted.
Result<int> run_gangs(const Options& options);

}  // namespace tutti::run
