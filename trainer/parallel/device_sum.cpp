#include "trainer/parallel/device_sum.h"

namespace tutti::trainer::parallel {

Result<> DeviceSum::add_up(tutti_dtype dtype, const std::vector<const void*>& inputs,
                           const std::vector<void*>& outputs, std::size_t bytes) {
    Device& first = *devices_.front();
    if (peer_.bytes() < bytes) {
        TRAINER_ASSIGN(peer_, DeviceAllocation::make(first, bytes));
    }
    TRAINER_TRY(first.copy(outputs[0], inputs[0], bytes));
    for (std::size_t d = 1; d < inputs.size(); ++d) {
        TRAINER_TRY(first.copy_from(*devices_[d], peer_.data(), inputs[d], bytes));
        TRAINER_TRY(
            first.axpby(bytes / tutti_dtype_size(dtype), dtype, 1, peer_.data(), 1, outputs[0]));
    }
    for (std::size_t d = 1; d < outputs.size(); ++d)
        TRAINER_TRY(devices_[d]->copy_from(first, outputs[d], outputs[0], bytes));
    return {};
}

}  // namespace tutti::trainer::parallel
