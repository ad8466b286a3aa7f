// --ranks N: runs the same command again, as N ranks under tutti-run.
#pragma once

namespace bench {

/// Replaces this process. If tutti-run cannot be started, prints the reason and returns the exit
/// code.
int relaunch(int ranks, int argc, char** argv);

}  // namespace bench
