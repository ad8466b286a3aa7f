#include "trainer/sync/state_copy.h"

namespace tutti::trainer {

Result<StateCopy> StateCopy::make(std::vector<const BufferGroup*> groups,
                                  const std::vector<Device*>& devices) {
    StateCopy made;
    made.devices_ = devices.size();
    for (const BufferGroup* group : groups)
        for (std::size_t d = 0; d < devices.size(); ++d) {
            const DeviceAllocation& of = group->memory[d];
            TRAINER_ASSIGN(DeviceAllocation copy, DeviceAllocation::make(*devices[d], of.bytes()));
            made.copies_.push_back({devices[d], &of, std::move(copy)});
        }
    return made;
}

Result<> StateCopy::take() {
    for (GroupCopy& one : copies_)
        TRAINER_TRY(one.device->copy(one.copy.data(), one.of->data(), one.copy.bytes()));
    return {};
}

Result<> StateCopy::restore() const {
    for (const GroupCopy& one : copies_)
        TRAINER_TRY(one.device->copy(one.of->data(), one.copy.data(), one.copy.bytes()));
    return {};
}

std::size_t StateCopy::bytes() const {
    std::size_t all = 0;
    for (const GroupCopy& one : copies_) all += one.copy.bytes();
    return all / devices_;
}

}  // namespace tutti::trainer
