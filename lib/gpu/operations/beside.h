// A device's collective, and on the host an operation without data whose messages carry the call's
// fingerprint. It detects a mismatch between ranks, which the device library does not.
#pragma once

#include <memory>

#include "cuda/operation.h"

namespace tutti {

/// Done when both operations are. The device's is launched first; the fingerprint's starts in its
/// turn.
std::unique_ptr<DeviceOperation> beside(std::unique_ptr<DeviceOperation> device,
                                        std::unique_ptr<Operation> fingerprint);

}  // namespace tutti
