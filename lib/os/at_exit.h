// The end of the process, by exit or by a return from main: the order in which the library ends.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace tutti::at_exit {

/// The steps in their order. They have a second together.
enum class ExitStep : uint8_t { leave_jobs, close_stores };
constexpr int64_t most_ms = 1000;

/// One exit handler takes the steps that this process has asked for; a forked child's takes those
/// that the child has asked for. No thread of tutti's runs any more when exit goes on to the
/// handlers of the libraries that such a thread enters.
///
/// Exit handlers run in the opposite order of their registration. So the handler is registered
/// again whenever tutti has begun to use other libraries, which `libraries` names.
void arm(std::string_view libraries, ExitStep step, void (*take)(Deadline));

}  // namespace tutti::at_exit
