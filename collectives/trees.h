// Trees that several algorithms share: parents and children by arithmetic, without tables.
#pragma once

#include <algorithm>

#include "schedule/schedule.h"

namespace tutti {

/// Reduce over a tree of the ranks themselves, rank 0 at its top, whatever the root: only so do
/// contributions meet in rank order. `radix` - 1 children at each power of the radix.
Schedule knomial_tree_reduce(const ScheduleRequest& request, Rank radix);

}  // namespace tutti
