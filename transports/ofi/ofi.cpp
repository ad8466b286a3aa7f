// The libfabric transport: the fabric's engine over libfabric's endpoints.
#include "fabric/fabric.h"
#include "transports/catalog.h"
#include "transports/ofi/factory.h"

namespace tutti {
namespace {

constexpr double latency_us = 8;

}  // namespace

std::unique_ptr<Transport> make_ofi_transport(const TransportContext& context) {
    const ofi::PortOptions options{.wish = {.provider = context.ofi_provider,
                                            .iface = context.iface,
                                            .loopback_only = context.loopback_only,
                                            .usual_address = context.usual_address},
                                   .rank = context.rank,
                                   .size = context.size};
    return fabric::make_fabric_transport(
        context, ofi::make_factory(options),
        {.name = "ofi", .max_message_bytes = options.max_message_bytes, .latency_us = latency_us});
}

}  // namespace tutti
