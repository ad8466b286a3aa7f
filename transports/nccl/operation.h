// The runs of an NCCL communicator that are in progress on the device.
#pragma once

#include "cuda/library.h"
#include "transports/nccl/membership.h"

namespace tutti::nccl {

class Runs;

/// The runs of one membership that are on the device, in the order of their launch.
std::shared_ptr<Runs> make_runs();
bool none(Runs& runs);

/// A run that is one step.
Result<std::unique_ptr<DeviceOperation>> make_operation(std::shared_ptr<Membership> membership,
                                                        std::shared_ptr<Runs> runs,
                                                        std::unique_ptr<DeviceStep> step,
                                                        std::size_t ring);
/// A run of several steps, which the caller puts on streams.
std::unique_ptr<DeviceRun> make_run(std::shared_ptr<Membership> membership,
                                    std::shared_ptr<Runs> runs);

}  // namespace tutti::nccl
