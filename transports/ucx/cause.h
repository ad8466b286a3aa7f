// Why UCX refuses something. It returns a status and logs the reason, which may be any of a full
// /dev/shm, a missing /proc or a limit: errors of ours quote what it logged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::ucx {

/// An error that UCX has logged on this thread; kept for a second.
void note_error(std::string_view text);

/// For the end of a message: what UCX has logged first on this thread since then (steady clock), as
/// what it logs after that follows from it; if it has not, or speaks of a network card, how much
/// memory this process may lock. May be empty.
std::string cause_since(int64_t start_ns);

}  // namespace tutti::ucx
