// Descriptors that wake another thread.
#pragma once

#include "base/fd.h"

namespace tutti {

/// An eventfd, non-blocking and close-on-exec. system: says what may be the reason.
Result<UniqueFd> make_event_fd();

}  // namespace tutti
