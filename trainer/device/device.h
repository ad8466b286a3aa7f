// A device's table of functions, with errors for its statuses.
#pragma once

#include <cstddef>
#include <utility>

#include "trainer/base/result.h"
#include "tutti/trainer.h"

namespace tutti::trainer {

/// Cores and memory of this host.
const tutti_device_functions& cpu_functions();

}  // namespace tutti::trainer

struct tutti_device {
    template <typename T = void>
    using Result = tutti::trainer::Result<T>;

public:
    tutti_device(const tutti_device_functions& functions, void* user)
        : functions_(functions), user_(user) {}

    Result<void*> alloc(std::size_t bytes);
    void free(void* data, std::size_t bytes) noexcept { functions_.free(user_, data, bytes); }
    Result<> copy(void* to, const void* from, std::size_t bytes);
    /// Copies from another device's memory: directly between devices of one kind, else through the
    /// host.
    Result<> copy_from(tutti_device& other, void* to, const void* from, std::size_t bytes);
    Result<> zero(void* data, std::size_t bytes);
    Result<> axpby(std::size_t count, tutti_dtype dtype, double a, const void* x, double b,
                   void* y);
    Result<> run(void (*work)(void*), void* argument);
    /// Whether libtutti and devices of its kind can access its memory.
    bool is_reachable() const { return functions_.memory == TUTTI_MEMORY_REACHABLE; }
    /// Whether its functions can access that device's memory.
    bool reaches(const tutti_device& other) const {
        return &other == this || (is_like(other) && is_reachable() && !functions_.copy_peer);
    }
    /// Whether it is the built-in device, on cores of this host.
    bool is_cpu() const { return functions_.alloc == tutti::trainer::cpu_functions().alloc; }
    bool can_convert() const { return functions_.convert != nullptr; }
    /// Converts elements; copies them if both types are the same.
    Result<> convert(std::size_t count, tutti_dtype from_dtype, const void* from,
                     tutti_dtype to_dtype, void* to);
    Result<> protect(void* data, std::size_t bytes, tutti_access access);

private:
    bool is_like(const tutti_device& other) const {
        return functions_.copy == other.functions_.copy &&
               functions_.copy_peer == other.functions_.copy_peer;
    }

    tutti_device_functions functions_;
    void* user_;
};

namespace tutti::trainer {

using Device = tutti_device;

constexpr bool is_floating(tutti_dtype dtype) {
    return dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT8_E5M2;
}
constexpr bool is_narrow(tutti_dtype dtype) {
    return dtype == TUTTI_FLOAT16 || dtype == TUTTI_BFLOAT16;
}
/// The type in which the layer adds values of a type: 16 bits would be rounded at each addition.
constexpr tutti_dtype sum_dtype(tutti_dtype dtype) {
    return is_narrow(dtype) ? TUTTI_FLOAT32 : dtype;
}

/// A piece of a device's memory.
class DeviceAllocation {
public:
    DeviceAllocation() = default;
    static Result<DeviceAllocation> make(Device& device, std::size_t bytes) {
        DeviceAllocation memory;
        if (bytes) {
            TRAINER_ASSIGN(memory.data_, device.alloc(bytes));
        }
        memory.device_ = &device;
        memory.bytes_ = bytes;
        return memory;
    }
    DeviceAllocation(DeviceAllocation&& other) noexcept
        : device_(other.device_),
          data_(std::exchange(other.data_, nullptr)),
          bytes_(other.bytes_) {}
    DeviceAllocation& operator=(DeviceAllocation&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~DeviceAllocation() {
        if (data_) device_->free(data_, bytes_);
    }

    std::byte* data() const { return static_cast<std::byte*>(data_); }
    std::size_t bytes() const { return bytes_; }

private:
    Device* device_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace tutti::trainer
