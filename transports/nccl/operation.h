// One collective bound to an NCCL communicator.
#pragma once

#include "transports/nccl/membership.h"
#include "transports/nccl/types.h"

namespace tutti::nccl {

class Runs;

/// The runs of one membership that are on the device, in the order of their launch.
std::shared_ptr<Runs> make_runs();
bool none(Runs& runs);

Result<std::unique_ptr<Operation>> make_operation(std::shared_ptr<Membership> membership,
                                                  std::shared_ptr<Runs> runs,
                                                  const IntrinsicShape& shape,
                                                  const Elements& elements);

}  // namespace tutti::nccl
