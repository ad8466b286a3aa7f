// The short measurement at start-up: a few operations fit the cost model to the machine at hand.
#pragma once

#include "comm/communicator.h"

namespace tutti {

/// Collective, before the program's first call; takes about budget_ms, and one round of operations
/// at least. All ranks get rank 0's constants. If a tuning file has constants for the wire, this
/// does nothing.
Result<> calibrate(Communicator& comm, int64_t budget_ms);

}  // namespace tutti
