// Adds up the devices' inputs with the devices' own functions.
#pragma once

#include <vector>

#include "trainer/device/device.h"

namespace tutti::trainer::parallel {

/// One call at a time.
class DeviceSum {
public:
    /// An empty list: the sum is not used.
    explicit DeviceSum(std::vector<Device*> devices) : devices_(std::move(devices)) {}
    bool is_used() const { return !devices_.empty(); }
    /// Every output gets the sum of all inputs, in the order of devices; inputs[d] may be
    /// outputs[d].
    Result<> add_up(tutti_dtype dtype, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, std::size_t bytes);

private:
    const std::vector<Device*> devices_;
    DeviceAllocation peer_;  // on device 0: a copy of another device's input
};

}  // namespace tutti::trainer::parallel
