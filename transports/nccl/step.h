// One collective of an NCCL communicator: whatever it is part of, it is put on a stream here.
#pragma once

#include "transport/device_library.h"
#include "transports/nccl/membership.h"
#include "transports/nccl/types.h"

namespace tutti::nccl {

Result<std::unique_ptr<DeviceStep>> make_step(std::shared_ptr<Membership> membership,
                                              const IntrinsicShape& shape,
                                              const Elements& elements);

}  // namespace tutti::nccl
