// Descriptors that wake another thread.
#pragma once

#include "base/fd.h"

namespace tutti {

/// An eventfd, non-blocking and close-on-exec. rings: it is readable from the start. system: says
/// what may be the reason.
Result<UniqueFd> make_event_fd(bool rings = false);

/// Makes it readable for its sleepers. < 0: there is none. A full counter means that it is readable
/// already.
void ring_event_fd(int fd);

/// Until it is rung again it is not readable.
void drain_event_fd(int fd);

}  // namespace tutti
