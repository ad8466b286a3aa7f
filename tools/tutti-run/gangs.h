// Runs gangs of ranks, one after another. A gang starts when the previous one has ended.
#pragma once

#include "base/result.h"
#include "options.h"

namespace tutti::run {

/// Returns the exit code of tutti-run: after options.gangs successful gangs, or after a failed gang
/// that may not be restarted.
Result<int> run_gangs(const Options& options);

}  // namespace tutti::run
