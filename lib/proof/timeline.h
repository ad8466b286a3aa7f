// Draws a simulation.
#pragma once

#include <string>
#include <string_view>

#include "proof/simulate.h"

namespace tutti::sim {

/// A space-time diagram as SVG: ranks as rows, time to the right, a line for each message from the
/// end of its sender's step to its arrival, coloured by lane, and bars where processors work. The
/// report must have been recorded.
std::string draw_timeline(const Report& report, std::string_view title);

}  // namespace tutti::sim
