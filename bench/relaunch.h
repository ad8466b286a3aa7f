// --ranks N: the same command again, as N ranks under tutti-run.
#pragma once

namespace bench {

/// Replaces this process; returns only if tutti-run cannot be started (printed): the exit code.
int relaunch(int ranks, int argc, char** argv);

}  // namespace bench
