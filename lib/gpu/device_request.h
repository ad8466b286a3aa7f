// A request of which its issuer puts a part on a device's stream.
#pragma once

#include <memory>

#include "cuda/operation.h"
#include "gpu/stream_use.h"
#include "run/request.h"

namespace tutti {

struct DeviceRequest : Request {
    DeviceRequest() {
        external = true;
        released = false;
    }
    bool may_end() override { return !device || device->may_cancel(); }
    bool is_outdated(uint64_t current) const override { return generation != current; }
    void ended() override { use.end(); }

    DeviceOperation* device = nullptr;  // the plan's or the messages'; nullptr: nothing is launched
    void* device_stream = nullptr;
    StreamUse use;            // a collective's, until it is done
    uint64_t generation = 0;  // of the device group that it is for
};

/// The plan, with an operation that is launched.
inline std::unique_ptr<Plan> launched(std::unique_ptr<Plan> plan,
                                      std::unique_ptr<DeviceOperation> operation) {
    plan->launched = operation.get();
    plan->operation = std::move(operation);
    return plan;
}

}  // namespace tutti
