// Finds two lanes of one rank that access the same memory without an order between them.
#pragma once

#include <string>

#include "schedule/places.h"

namespace tutti {

/// Empty, or the first conflict: "lane 0 step 3 and lane 1 step 0 both use output[2] …".
std::string find_conflict(const Schedule& schedule, const Places& where, bool in_place);

}  // namespace tutti
