// Calling back into Python, until it ends.
#pragma once

#include <functional>
#include <vector>

namespace tutti_torch {

using Callback = std::function<void()>;

/// One after the other, on this thread. After close_callbacks() they are neither called nor
/// destroyed: either may need Python's lock, and who asks for that while the interpreter ends is
/// itself ended, or waits for ever.
void call_back(std::vector<Callback> callbacks);
/// No callback begins from now on; waits a while for those that have begun. Without Python's lock.
void close_callbacks();
bool callbacks_closed();

}  // namespace tutti_torch
