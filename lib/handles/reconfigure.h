// Communicators of processes that know each other's handles.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "comm/communicator.h"
#include "config/config.h"

namespace tutti {

inline constexpr std::size_t max_uuid_bytes = 256;

struct Reconfiguration {
    std::string uuid;
    std::span<const ByteView> handles;
    int64_t timeout_ms = -1;  // for the meeting; -1: the settings'
};

/// The ranks are the handles' indices. Collective over the processes of the handles.
Result<std::shared_ptr<Communicator>> reconfigure(const Config& config,
                                                  const Reconfiguration& wanted);

}  // namespace tutti
