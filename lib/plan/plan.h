// A call bound once: what was asked for, what was chosen, and the operation that does it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/call.h"
#include "transport/operation.h"

namespace tutti {

class DeviceOperation;

struct Plan {
    /// Copies what the call refers to: a plan outlives the call that it was made for.
    Plan(const Call& wanted, uint32_t on_stream);

    Call call;
    std::string algorithm;             // what call.algorithm points to
    std::vector<std::size_t> lengths;  // what the call's lists point to
    std::vector<const void*> inputs;   // of the run under way, where the call has several
    uint32_t stream = 0;
    Tag tag;  // all but the sequence
    std::unique_ptr<Operation> operation;
    DeviceOperation* launched =
        nullptr;                      // the same, where a part of it is put on a device's stream
    std::unique_ptr<Plan> on_device;  // the same call on device memory, once it was needed
    uint64_t generation = 0;          // of the device group that it was bound to
    void* device_stream = nullptr;    // of a persistent plan's runs
    int64_t timeout_ms = -1;          // likewise; < 0: the communicator's
    std::atomic<bool> busy{false};    // a request runs it

    bool busy_anywhere() const { return busy || (on_device && on_device->busy); }
};

}  // namespace tutti
