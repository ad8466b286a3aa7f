// Every transport of this build, in the order in which they are preferred.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "transport/transport.h"

namespace tutti {

struct TransportKind {
    std::string_view name;
    std::string_view summary;
    std::unique_ptr<Transport> (*make)(const TransportContext& context);
};

std::span<const TransportKind> transports();

std::unique_ptr<Transport> make_inproc_transport(const TransportContext& context);
std::unique_ptr<Transport> make_shm_transport(const TransportContext& context);
std::unique_ptr<Transport> make_tcp_transport(const TransportContext& context);
std::unique_ptr<Transport> make_ucx_transport(const TransportContext& context);
std::unique_ptr<Transport> make_ofi_transport(const TransportContext& context);

}  // namespace tutti
