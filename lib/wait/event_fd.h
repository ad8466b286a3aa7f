// Descriptors that wake another thread.
#pragma once

#include "base/fd.h"

namespace tutti {

/// Returns an eventfd, non-blocking and close-on-exec. rings: it is readable from the start. The
/// advice of a `system` error names the likely cause.
Result<UniqueFd> make_event_fd(bool rings = false);

/// Makes the descriptor readable, which wakes the threads that sleep on it. fd < 0: does nothing.
/// If the counter is full, the descriptor is readable already.
void ring_event_fd(int fd);

/// Resets the counter: the descriptor is not readable until the next ring.
void drain_event_fd(int fd);

}  // namespace tutti
