// Puts one collective of an NCCL communicator, or messages, on a stream.
#pragma once

#include "cuda/library.h"
#include "transports/nccl/membership.h"
#include "transports/nccl/types.h"

namespace tutti::nccl {

Result<std::unique_ptr<DeviceStep>> make_step(std::shared_ptr<Membership> membership,
                                              const IntrinsicShape& shape,
                                              const Elements& elements);
std::unique_ptr<DeviceStep> make_messages(std::shared_ptr<Membership> membership,
                                          std::vector<DeviceMessage> messages, std::size_t ring);

}  // namespace tutti::nccl
