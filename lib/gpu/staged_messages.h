// The device's part of messages that travel on the host. Sends are copied to pinned memory and
// receives from it; if the channel takes device memory, messages are direct. All of it keeps the
// order of the caller's stream, and no host thread waits for the stream.
#pragma once

#include <deque>
#include <memory>

#include "cuda/pinned_pool.h"
#include "gpu/device_messages.h"
#include "gpu/operations/staged.h"

namespace tutti {

/// Bytes of pinned memory that these messages need.
std::size_t staging_bytes(const std::deque<DeviceMessages::Part>& parts);

/// Gives the parts' host messages their places in `memory`. Holds sends until the device has
/// written that memory, and direct messages until the stream has reached them. The owner of the
/// transfers calls progress(); ok means that all received data is on the device, even if a single
/// message failed. The parts outlive it.
Result<std::unique_ptr<DeviceOperation>> stage_messages(std::shared_ptr<const StagingArea> area,
                                                        device::PinnedPool::Lease memory,
                                                        std::deque<DeviceMessages::Part>& parts);

}  // namespace tutti
