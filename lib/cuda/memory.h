// Tells whether a pointer is host memory or a device's.
#pragma once

#include "cuda/driver.h"

namespace tutti::device {

struct MemoryKind {
    static constexpr Ordinal host = -1;
    Ordinal device = host;
    bool on_device() const { return device != host; }
    bool operator==(const MemoryKind&) const = default;
};

/// "host memory", "memory of device 0"
std::string describe(MemoryKind kind);

/// Asks the driver, unless the address is surely the host's: the heap and the calling thread's
/// stack are never device memory. Answers are not cached, because other addresses may be freed and
/// reused without notice. system if the driver no longer answers, as after a device error: then
/// nothing can tell device memory from host memory. Any thread.
Result<MemoryKind> ask_driver(const Driver& driver, const void* pointer);

/// Whether it is managed memory, which the driver migrates between host and device.
Result<bool> is_managed(const Driver& driver, const void* pointer);

/// Costs one load without a driver. NULL is host memory.
inline Result<MemoryKind> memory_of(const void* pointer) {
    const Driver* found = driver();
    if (!found) [[likely]]
        return MemoryKind{};
    return ask_driver(*found, pointer);
}

}  // namespace tutti::device
