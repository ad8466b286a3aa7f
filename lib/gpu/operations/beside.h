// A device's collective, and beside it on the host an operation of no data whose messages carry the
// call's fingerprint: a device's library does not notice that ranks call different things.
#pragma once

#include <memory>

#include "cuda/operation.h"

namespace tutti {

/// Done when both are. The fingerprint's is started in its turn, the device's is launched before.
std::unique_ptr<DeviceOperation> beside(std::unique_ptr<DeviceOperation> device,
                                        std::unique_ptr<Operation> fingerprint);

}  // namespace tutti
