// Buffers in a GPU's memory. The driver is loaded when --memory device asks for it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// One allocation; freed with the device.
class DeviceMemory {
public:
    explicit DeviceMemory(unsigned long long address) : address_(address) {}
    unsigned long long address() const { return address_; }
    /// The address as the C API takes it. The host must not read or write there.
    std::byte* get() const { return reinterpret_cast<std::byte*>(address_); }

private:
    unsigned long long address_;
};

/// The device of this rank: the visible device with number rank modulo the number of devices.
/// Throws std::runtime_error with the driver's reason.
class Device {
public:
    explicit Device(int rank);
    ~Device();
    Device(const Device&) = delete;

    DeviceMemory allocate(std::size_t bytes);
    void write(const DeviceMemory& to, const void* from, std::size_t bytes) const;
    void read(void* to, const DeviceMemory& from, std::size_t bytes) const;

private:
    struct Driver;
    const std::unique_ptr<Driver> driver_;
};

}  // namespace bench
