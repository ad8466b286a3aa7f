// Every transport of this build, in the order in which they are preferred.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/library.h"
#include "transport/transport.h"

namespace tutti {

/// A device on this machine that a transport can use, as listings show it.
struct Device {
    std::string provider;  // the part of a library that drives it; "" where there is no choice
    std::string name;      // "eth0", "mlx5_0:1"
    std::string detail;    // address, speed
    bool usable = true;
    std::string why_not;  // the cause, and where there is one the remedy
};

struct TransportKind {
    std::string_view name;
    std::string_view summary;
    std::unique_ptr<Transport> (*make)(const TransportContext& context);
    // Looks anew at each call, and may take long: libraries load their plug-ins. nullptr: there is
    // nothing to choose among.
    std::vector<Device> (*devices)() = nullptr;
    // Whether messages may go straight from and to a GPU's memory here; an error says why not. Looks
    // as devices does. nullptr: it takes the host's memory only.
    Result<> (*takes_devices)() = nullptr;
};

std::span<const TransportKind> transports();

/// Libraries that do whole collectives on device memory; they are no channels, and chosen by where
/// the buffers are.
struct DeviceLibraryKind {
    std::string_view name;
    std::string_view summary;
    // path: where to look after what the process has; "" for nowhere in particular. unsupported
    // says where it looked.
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
