// Schedules for people: a table as text, a space-time diagram as SVG.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace tutti {

/// One line a step: "rank 0 lane 0 step 1: recv 3 ⊕ input[2] -> output[2], send 1".
std::string draw_text(const std::vector<Schedule>& by_rank);

/// Ranks as columns, steps downwards, an arrow a message, coloured by lane.
std::string draw_svg(const std::vector<Schedule>& by_rank, std::string_view title);

}  // namespace tutti
