// The device's part of messages that travel on the host: what is sent is copied to pinned memory,
// what is received comes from there, or both go as they are where the channel takes a device's
// memory; all in the order of the caller's stream, for which nobody waits.
#pragma once

#include <deque>
#include <memory>

#include "cuda/pinned_pool.h"
#include "gpu/device_messages.h"
#include "gpu/operations/staged.h"

namespace tutti {

/// Bytes of pinned memory that these messages need.
std::size_t staging_bytes(const std::deque<DeviceMessages::Part>& parts);

/// Gives the parts' messages on the host their memory, in `memory`, and holds those that are sent
/// until the device has written it, direct ones until its stream has come so far. progress() is the
/// owner's of the transfers; ok: all that was received is on the device, whatever a single
/// message's end was. Outlived by the parts.
Result<std::unique_ptr<DeviceOperation>> stage_messages(std::shared_ptr<const StagingArea> area,
                                                        device::PinnedPool::Lease memory,
                                                        std::deque<DeviceMessages::Part>& parts);

}  // namespace tutti
