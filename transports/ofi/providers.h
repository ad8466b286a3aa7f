// Which libfabric providers there are here, and which of them a port can use.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transports/ofi/library.h"

namespace tutti::ofi {

/// One way to the network, as fi_info lists it.
struct ProviderInfo {
    std::string provider;  // "tcp;ofi_rxm"
    std::string fabric;    // "192.168.1.0/24"
    std::string domain;    // device or interface
    std::string version;   // the provider's
    std::string capabilities;
    std::string unusable;  // why tutti cannot use it; empty: it can
    bool chosen = false;   // the best of the usable
};

struct ProviderWish {
    std::string provider;  // TUTTI_OFI_PROVIDER; empty: the best
    std::string iface;     // TUTTI_IFACE
    bool loopback_only = false;
    std::string usual_address;  // where there is no iface: TransportContext has it
};

struct FreeInfo {
    void operator()(fi_info* info) const { library().fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

/// The best that fits. unsupported: there is none (lists those there are, and why not).
Result<InfoPtr> choose_provider(const ProviderWish& wish);

/// All of them, the preferred first, and what `wish` means for them. Empty where there is no
/// libfabric: load_library() says why.
std::vector<ProviderInfo> providers(const ProviderWish& wish = {});

/// "1.17": of the library that is loaded.
std::string library_version();

/// Smaller is better; nobody's first choice are those that only debugging wants.
int preference(std::string_view provider);

/// Whether it moves everything through the kernel's streams.
bool is_over_sockets(std::string_view provider);
/// And itself knows of a connection to each peer, with no layer between.
bool is_plain_sockets(std::string_view provider);

/// Whether TUTTI_OFI_PROVIDER means this provider: its full name, or that of a layer: "tcp".
bool names(std::string_view wanted, std::string_view provider);

}  // namespace tutti::ofi
