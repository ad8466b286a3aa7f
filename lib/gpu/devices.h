// A communicator's device state: the device, its library's group, the stream, registered memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cuda/handles.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "gpu/operations/staged.h"
#include "plan/call.h"

namespace tutti {

/// The kinds of memory of a call's input and output.
struct Kinds {
    device::MemoryKind in, out;
    bool differ() const { return in != out; }
    /// One buffer is host memory, the other device memory.
    bool mixed() const { return in.on_device() != out.on_device(); }
    OnHost on_host() const {
        if (!mixed()) return OnHost::neither;
        return in.on_device() ? OnHost::output : OnHost::input;
    }
    /// The device memory's kind, if either is.
    device::MemoryKind device() const { return in.on_device() ? in : out; }
};

/// Only the issuing thread uses it. The first call on device memory fills it in.
struct Devices {
    device::Ordinal device = device::MemoryKind::host;
    void* stream = nullptr;  // the stream of calls that name none
    bool stream_was_set = false;
    void* checked_stream = nullptr;  // the last stream that was found to be the device's
    std::optional<device::Context> context;
    std::shared_ptr<DeviceLibrary> library;
    std::shared_ptr<DeviceGroup> group;
    std::shared_ptr<const StagingArea> staging;
    bool of_host = false;      // the group has this host's ranks only
    int32_t capability = 0;    // the least of all ranks' devices
    uint64_t generation = 0;   // of the group
    bool path_agreed = false;  // the ranks have agreed on the path for that generation

    /// Memory registered with the library, in the order of registration.
    struct RegisteredMemory {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
        bool window = false;  // of all ranks, and ours
    };
    std::vector<RegisteredMemory> memory;

    bool joined() const { return context.has_value(); }
};

}  // namespace tutti
