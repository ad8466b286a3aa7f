#include "device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "complain.h"

namespace bench {
namespace {

void need(int status, const char* what) {
    if (status != 0)
        throw std::runtime_error(command_line::with_advice(
            std::string("--memory device: ") + what + ": CUDA error " + std::to_string(status),
            "look at the GPU and its driver with nvidia-smi"));
}

}  // namespace

struct Device::Driver {
    int (*init)(unsigned) = nullptr;
    int (*count)(int*) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*release)(int) = nullptr;
    int (*push)(void*) = nullptr;
    int (*allocate)(unsigned long long*, std::size_t) = nullptr;
    int (*free)(unsigned long long) = nullptr;
    int (*write)(unsigned long long, const void*, std::size_t) = nullptr;
    int (*read)(void*, unsigned long long, std::size_t) = nullptr;
    int device = 0;
    std::vector<unsigned long long> allocations;

    Driver() {
        const char* named = std::getenv("TUTTI_CUDA_LIBRARY");
        const std::string path = named && std::string(named) != "auto" ? named : "libcuda.so.1";
        void* handle = dlopen(path.c_str(), RTLD_NOW);
        if (!handle)
            throw std::runtime_error(command_line::with_advice(
                std::string("--memory device: ") + dlerror(),
                "install NVIDIA's driver, or set TUTTI_CUDA_LIBRARY to its path"));
        const auto load = [&](auto& function, const char* name) {
            function =
                reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
            if (!function)
                throw std::runtime_error(command_line::with_advice(
                    "--memory device: " + path + " has no function " + name,
                    "install a newer driver, or set TUTTI_CUDA_LIBRARY to the path of one"));
        };
        load(init, "cuInit");
        load(count, "cuDeviceGetCount");
        load(retain, "cuDevicePrimaryCtxRetain");
        load(release, "cuDevicePrimaryCtxRelease_v2");
        load(push, "cuCtxPushCurrent_v2");
        load(allocate, "cuMemAlloc_v2");
        load(free, "cuMemFree_v2");
        load(write, "cuMemcpyHtoD_v2");
        load(read, "cuMemcpyDtoH_v2");
    }
};

Device::Device(int rank) : driver_(std::make_unique<Driver>()) {
    need(driver_->init(0), "starting the driver");
    int devices = 0;
    need(driver_->count(&devices), "counting devices");
    if (devices == 0)
        throw std::runtime_error(
            command_line::with_advice("--memory device: no GPU is visible",
                                      "set CUDA_VISIBLE_DEVICES to a GPU of this machine"));
    driver_->device = rank % devices;
    void* context = nullptr;
    need(driver_->retain(&context, driver_->device), "using the device");
    need(driver_->push(context), "using the device");
}

Device::~Device() {
    for (const auto address : driver_->allocations) driver_->free(address);
    driver_->release(driver_->device);
}

DeviceMemory Device::allocate(std::size_t bytes) {
    unsigned long long address = 0;
    need(driver_->allocate(&address, std::max<std::size_t>(bytes, 1)), "allocating");
    driver_->allocations.push_back(address);
    return DeviceMemory(address);
}

void Device::write(const DeviceMemory& to, const void* from, std::size_t bytes) const {
    if (bytes > 0) need(driver_->write(to.address(), from, bytes), "copying to the device");
}

void Device::read(void* to, const DeviceMemory& from, std::size_t bytes) const {
    if (bytes > 0) need(driver_->read(to, from.address(), bytes), "copying from the device");
}

}  // namespace bench
