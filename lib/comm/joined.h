// Logs a communicator's successful start, once and not per call.
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace tutti {

/// At level info: rank 0 says what holds for all, every rank where it is. took_ms: joining.
void log_joined(const Communicator& comm, const Endpoint& endpoint, int64_t took_ms);

}  // namespace tutti
