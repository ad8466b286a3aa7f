// The libfabric transport: the fabric's engine over libfabric's endpoints.
#include "transport/fabric/fabric.h"
#include "transports/catalog.h"
#include "transports/ofi/factory.h"

namespace tutti {
namespace {

// Large enough that a message's own cost does not count, small enough that a payload is still in
// the cache when it is reduced.
constexpr std::size_t max_message_bytes = 256 * 1024;
constexpr double latency_us = 8;

}  // namespace

std::unique_ptr<Transport> make_ofi_transport(const TransportContext& context) {
    auto factory = ofi::make_factory({.wish = {.provider = context.ofi_provider,
                                               .iface = context.iface,
                                               .loopback_only = context.loopback_only},
                                      .rank = context.rank,
                                      .size = context.size,
                                      .max_message_bytes = max_message_bytes});
    return fabric::make_fabric_transport(
        context, std::move(factory),
        {.name = "ofi", .max_message_bytes = max_message_bytes, .latency_us = latency_us});
}

}  // namespace tutti
