// Lists the providers that libfabric finds on this machine, for tutti-info.
#include "transports/catalog.h"
#include "transports/ofi/library.h"
#include "transports/ofi/providers.h"

namespace tutti {

std::vector<Device> ofi_devices() {
    const auto library = ofi::load_library();
    if (!library)
        return {{.provider = "",
                 .name = "libfabric",
                 .detail = "",
                 .usable = false,
                 .why_not = library.error().message}};
    std::vector<Device> out;
    for (const ofi::ProviderInfo& one : ofi::providers())
        out.push_back(
            {.provider = one.provider,
             .name = one.domain,
             .detail = fmt::format("{}, version {}{}", one.fabric, one.version,
                                   one.chosen ? ", taken if TUTTI_OFI_PROVIDER is not set" : ""),
             .usable = one.unusable.empty(),
             .why_not = one.unusable});
    return out;
}

}  // namespace tutti
