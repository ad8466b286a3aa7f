// Which memory a pointer leads to: the host's, or a device's.
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

/// Asks the driver, unless the address can only be the host's: the program's data, its heap and the
/// calling thread's stack never become a device's. Answers are not kept, as other addresses change
/// hands without a word to us. system where the driver answers nothing any more, as after an error
/// of the device's: then only it could tell a device's memory from the host's. Any thread.
Result<MemoryKind> ask_driver(const Driver& driver, const void* pointer);

/// Whether it is memory that the driver moves between host and device as either uses it.
Result<bool> is_managed(const Driver& driver, const void* pointer);

/// Without a driver, one load. NULL is the host's.
inline Result<MemoryKind> memory_of(const void* pointer) {
    const Driver* found = driver();
    if (!found) [[likely]]
        return MemoryKind{};
    return ask_driver(*found, pointer);
}

}  // namespace tutti::device
