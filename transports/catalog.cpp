#include "transports/catalog.h"

#include "transport/mapped/shared_memory.h"
#include "transport/posted/cells.h"

namespace tutti {
namespace {

constexpr TransportKind kinds[] = {
    {"inproc", "ranks as threads of one process, through its heap", make_inproc_transport},
    {"shm", "processes of one host, through shared memory", make_shm_transport, shm_devices},
    {"tcp", "any network with IP", make_tcp_transport, tcp_devices},
#if TUTTI_HAVE_UCX
    {"ucx", "networks that move memory, and all else UCX knows", make_ucx_transport, ucx_devices,
     ucx_takes_devices},
#endif
#if TUTTI_HAVE_OFI
    {"ofi", "networks that libfabric has a provider for", make_ofi_transport, ofi_devices},
#endif
};

#if TUTTI_HAVE_NCCL
constexpr DeviceLibraryKind libraries[] = {
    {"nccl", "NVIDIA's GPUs, through NCCL 2.18 or newer as it is found at run time",
     make_nccl_library},
};
#else
constexpr std::span<const DeviceLibraryKind> libraries;
#endif

}  // namespace

std::span<const TransportKind> transports() {
    return kinds;
}

MessageMemory message_memory() {
    return {.mapped = mapped_shared_bytes(), .cells = CellPool::large_bytes_of_process()};
}

std::span<const DeviceLibraryKind> device_libraries() {
    return libraries;
}

}  // namespace tutti
