// Every transport of this build, in order of preference.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/library.h"
#include "transport/transport.h"

namespace tutti {

/// A device on this machine that a transport can use, for listings.
struct Device {
    std::string provider;  // the part of a library that drives it; "" if there is no choice
    std::string name;      // "eth0", "mlx5_0:1"
    std::string detail;    // address, speed
    bool usable = true;
    std::string why_not;  // the cause, and the remedy if there is one
};

struct TransportKind {
    std::string_view name;
    std::string_view summary;
    std::unique_ptr<Transport> (*make)(const TransportContext& context);
    // Each call looks again, and may take long: libraries load their plug-ins. nullptr: the
    // transport has no devices to choose from.
    std::vector<Device> (*devices)() = nullptr;
    // Whether messages can go directly from and to a GPU's memory here; an error gives the reason
    // if not. Each call looks again. nullptr: the transport takes only the host's memory.
    Result<> (*takes_devices)() = nullptr;
};

std::span<const TransportKind> transports();

/// This process's memory for messages, in bytes.
struct MessageMemory {
    std::size_t mapped = 0;  // shared memory, its own and its peers'
    std::size_t cells = 0;   // large messages of transports without shared memory
};
MessageMemory message_memory();

/// Libraries that do whole collectives on device memory. They have no channels; a call uses one if
/// its buffers are on a device.
struct DeviceLibraryKind {
    std::string_view name;
    std::string_view summary;
    // path: tried if the process has not loaded the library; "": no path. unsupported: lists the
    // places tried.
    Result<std::unique_ptr<DeviceLibrary>> (*load)(const std::string& path);
};
std::span<const DeviceLibraryKind> device_libraries();

std::unique_ptr<Transport> make_inproc_transport(const TransportContext& context);
std::unique_ptr<Transport> make_shm_transport(const TransportContext& context);
std::unique_ptr<Transport> make_tcp_transport(const TransportContext& context);
std::unique_ptr<Transport> make_ucx_transport(const TransportContext& context);
std::unique_ptr<Transport> make_ofi_transport(const TransportContext& context);

Result<std::unique_ptr<DeviceLibrary>> make_nccl_library(const std::string& path);

std::vector<Device> shm_devices();
std::vector<Device> tcp_devices();
std::vector<Device> ucx_devices();
std::vector<Device> ofi_devices();
Result<> ucx_takes_devices();

}  // namespace tutti
