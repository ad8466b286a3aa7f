// One job after another: the next gang of ranks once the last has ended.
#pragma once

#include "base/result.h"
#include "options.h"

namespace tutti::run {

/// The exit code for the whole, after options.gangs that ended well or one that did not and may not
/// be started again.
Result<int> run_gangs(const Options& options);

}  // namespace tutti::run
