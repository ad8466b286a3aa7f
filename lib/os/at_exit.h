// The order in which the library shuts down when the process ends by exit or by a return from main.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace tutti::at_exit {

/// The steps, in the order in which the handler runs them. They share a deadline of most_ms.
enum class ExitStep : uint8_t { leave_jobs, close_stores, close_handles };
constexpr int64_t most_ms = 1000;

/// Asks for a step: an exit handler runs the steps that this process has asked for. A forked child
/// asks for its own.
///
/// tutti's handler must stop tutti's threads before the exit handlers of the libraries run that
/// these threads enter. Exit handlers run in the opposite order of their registration. So arm()
/// registers the handler again for each new value of `libraries`, a list of the libraries that
/// tutti has begun to use.
void arm(std::string_view libraries, ExitStep step, void (*run)(Deadline));

}  // namespace tutti::at_exit
