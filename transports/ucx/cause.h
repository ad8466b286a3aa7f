// Finds the reason of a UCX error. UCX returns a status and only logs the reason, such as a full
// /dev/shm, a missing /proc or a limit. So tutti's errors quote UCX's log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::ucx {

/// Records an error that UCX has logged on this thread; kept for a second.
void note_error(std::string_view text);

/// The end of an error message: the first error that UCX has logged on this thread since start_ns
/// (steady clock), because later ones follow from it. If there is none, or it is about a network
/// card: how much memory this process may lock. May be empty.
std::string cause_since(int64_t start_ns);

}  // namespace tutti::ucx
