// Logs a communicator's successful start, once and not per call.
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace tutti {

/// At level info: rank 0 logs the facts of the whole job, every rank its host. took_ms: the time
/// that joining took.
void log_joined(const Communicator& comm, const Endpoint& endpoint, int64_t took_ms);

}  // namespace tutti
