// A copy of some of a model's groups, on the devices that hold them.
#pragma once

#include <vector>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

class StateCopy {
public:
    StateCopy() = default;
    /// Allocates memory for the groups, which have theirs.
    static Result<StateCopy> make(std::vector<const BufferGroup*> groups,
                                  const std::vector<Device*>& devices);

    Result<> take();
    /// Gives the groups the values of the last take().
    Result<> restore() const;
    /// On one device.
    std::size_t bytes() const;

private:
    struct GroupCopy {
        Device* device;
        const DeviceAllocation* of;
        DeviceAllocation copy;
    };
    std::vector<GroupCopy> copies_;
    std::size_t devices_ = 1;
};

}  // namespace tutti::trainer
