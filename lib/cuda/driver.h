// The CUDA driver, found at run time. Its few entry points are declared here, so that the build
// needs no CUDA header and one binary runs with and without a GPU. tutti uses the driver only if
// the process has loaded it already, or if a setting names it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace tutti::device {

// Types of the driver's ABI.
using Status = int;
using Ordinal = int;
using Address = unsigned long long;
struct ContextTag;
struct StreamTag;
struct EventTag;
struct ModuleTag;
struct KernelTag;
using ContextHandle = ContextTag*;
using StreamHandle = StreamTag*;
using EventHandle = EventTag*;
using ModuleHandle = ModuleTag*;
using KernelHandle = KernelTag*;

inline constexpr Status success = 0, not_initialized = 3, not_ready = 600,
                        capture_unsupported = 900, capture_implicit = 906;

// X(member, result of dlsym's first name, its older name or the same, signature)
#define TUTTI_CUDA_FUNCTIONS(X)                                                                  \
    X(init, "cuInit", "cuInit", Status(unsigned))                                                \
    X(driver_version, "cuDriverGetVersion", "cuDriverGetVersion", Status(int*))                  \
    X(device_count, "cuDeviceGetCount", "cuDeviceGetCount", Status(int*))                        \
    X(device_name, "cuDeviceGetName", "cuDeviceGetName", Status(char*, int, Ordinal))            \
    X(pci_bus_id, "cuDeviceGetPCIBusId", "cuDeviceGetPCIBusId", Status(char*, int, Ordinal))     \
    X(device_attribute, "cuDeviceGetAttribute", "cuDeviceGetAttribute",                          \
      Status(int*, int, Ordinal))                                                                \
    X(can_access_peer, "cuDeviceCanAccessPeer", "cuDeviceCanAccessPeer",                         \
      Status(int*, Ordinal, Ordinal))                                                            \
    X(peer_attribute, "cuDeviceGetP2PAttribute", "cuDeviceGetP2PAttribute",                      \
      Status(int*, int, Ordinal, Ordinal))                                                       \
    X(primary_retain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain",                    \
      Status(ContextHandle*, Ordinal))                                                           \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease",              \
      Status(Ordinal))                                                                           \
    X(context_push, "cuCtxPushCurrent_v2", "cuCtxPushCurrent", Status(ContextHandle))            \
    X(context_pop, "cuCtxPopCurrent_v2", "cuCtxPopCurrent", Status(ContextHandle*))              \
    X(context_device, "cuCtxGetDevice", "cuCtxGetDevice", Status(Ordinal*))                      \
    X(pointer_attributes, "cuPointerGetAttributes", "cuPointerGetAttributes",                    \
      Status(unsigned, int*, void**, Address))                                                   \
    X(stream_create, "cuStreamCreate", "cuStreamCreate", Status(StreamHandle*, unsigned))        \
    X(stream_destroy, "cuStreamDestroy_v2", "cuStreamDestroy", Status(StreamHandle))             \
    X(stream_context, "cuStreamGetCtx", "cuStreamGetCtx", Status(StreamHandle, ContextHandle*))  \
    X(stream_wait_event, "cuStreamWaitEvent", "cuStreamWaitEvent",                               \
      Status(StreamHandle, EventHandle, unsigned))                                               \
    X(stream_wait_value, "cuStreamWaitValue32_v2", "cuStreamWaitValue32",                        \
      Status(StreamHandle, Address, uint32_t, unsigned))                                         \
    X(stream_write_value, "cuStreamWriteValue32_v2", "cuStreamWriteValue32",                     \
      Status(StreamHandle, Address, uint32_t, unsigned))                                         \
    X(stream_is_capturing, "cuStreamIsCapturing", "cuStreamIsCapturing",                         \
      Status(StreamHandle, int*))                                                                \
    X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode",                                \
      "cuThreadExchangeStreamCaptureMode", Status(int*))                                         \
    X(event_create, "cuEventCreate", "cuEventCreate", Status(EventHandle*, unsigned))            \
    X(event_destroy, "cuEventDestroy_v2", "cuEventDestroy", Status(EventHandle))                 \
    X(event_record, "cuEventRecord", "cuEventRecord", Status(EventHandle, StreamHandle))         \
    X(event_query, "cuEventQuery", "cuEventQuery", Status(EventHandle))                          \
    X(host_alloc, "cuMemHostAlloc", "cuMemHostAlloc", Status(void**, std::size_t, unsigned))     \
    X(host_free, "cuMemFreeHost", "cuMemFreeHost", Status(void*))                                \
    X(device_alloc, "cuMemAlloc_v2", "cuMemAlloc", Status(Address*, std::size_t))                \
    X(device_free, "cuMemFree_v2", "cuMemFree", Status(Address))                                 \
    X(copy_async, "cuMemcpyAsync", "cuMemcpyAsync",                                              \
      Status(Address, Address, std::size_t, StreamHandle))                                       \
    X(module_load, "cuModuleLoadData", "cuModuleLoadData", Status(ModuleHandle*, const void*))   \
    X(module_unload, "cuModuleUnload", "cuModuleUnload", Status(ModuleHandle))                   \
    X(module_function, "cuModuleGetFunction", "cuModuleGetFunction",                             \
      Status(KernelHandle*, ModuleHandle, const char*))                                          \
    X(launch_kernel, "cuLaunchKernel", "cuLaunchKernel",                                         \
      Status(KernelHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
             StreamHandle, void**, void**))                                                      \
    X(error_name, "cuGetErrorName", "cuGetErrorName", Status(Status, const char**))              \
    X(error_text, "cuGetErrorString", "cuGetErrorString", Status(Status, const char**))

/// A driver with all entry points; find_driver() refuses one that lacks any.
struct Driver {
#define TUTTI_CUDA_MEMBER(member, name, older, ...) \
    template <typename Signature>                   \
    using member##_type = Signature*;               \
    member##_type<__VA_ARGS__> member = nullptr;
    TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER
    std::string path;  // of the loaded library
    int version = 0;   // 13000 is CUDA 13.0
};

extern std::atomic<const Driver*> found_driver;

/// The driver, if find_driver() has found one. Calls on host memory read nothing else.
inline const Driver* driver() {
    // Pairs with the release in find_driver(): the driver's fields are visible to the reader.
    return found_driver.load(std::memory_order_acquire);
}

/// Looks for the driver at each call until one is found, which is then kept for ever. path "": only
/// if the program has loaded it; "auto": the system's search. unsupported lists the paths tried.
Result<const Driver*> find_driver(const std::string& path);

/// The Error of a failed driver call: "doing: CUDA_ERROR_… (text)".
Error driver_error(const Driver& driver, Status status, const std::string& doing);

/// The status of a driver's call as a Result.
inline Result<> check(const Driver& driver, Status status, const char* doing) {
    if (status == success) [[likely]]
        return {};
    return tl::unexpected(driver_error(driver, status, doing));
}

}  // namespace tutti::device
