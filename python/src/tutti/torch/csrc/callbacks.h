// Calling back into Python, until it ends.
#pragma once

#include <functional>
#include <vector>

namespace tutti_torch {

using Callback = std::function<void()>;

/// Calls them one after the other, on this thread. After close_callbacks() they are neither called
/// nor destroyed: both may need Python's lock, and a thread that requests it while the interpreter
/// ends is itself ended or waits for ever.
void call_back(std::vector<Callback> callbacks);
/// No callback starts from now on; waits some time for running ones. Call it without Python's lock.
void close_callbacks();
bool callbacks_closed();

}  // namespace tutti_torch
