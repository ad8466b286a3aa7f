// The libfabric providers on this machine, and which of them a port can use.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transports/ofi/library.h"

namespace tutti::ofi {

/// One entry of fi_info: a provider on one network.
struct ProviderInfo {
    std::string provider;  // "tcp;ofi_rxm"
    std::string fabric;    // "192.168.1.0/24"
    std::string domain;    // device or interface
    std::string version;   // the provider's version
    std::string capabilities;
    std::string unusable;  // why tutti cannot use it; empty: it can
    bool chosen = false;   // the best of the usable ones
};

struct ProviderWish {
    std::string provider;  // TUTTI_OFI_PROVIDER; empty: the best
    std::string iface;     // TUTTI_IFACE
    bool loopback_only = false;
    std::string usual_address;  // used without iface, from TransportContext
};

struct FreeInfo {
    void operator()(fi_info* info) const { library().fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

/// The best provider that fits. unsupported: none does (lists the providers, with reasons).
Result<InfoPtr> choose_provider(const ProviderWish& wish);

/// All providers, the preferred ones first, judged by `wish`. Empty without libfabric:
/// load_library() gives the reason.
std::vector<ProviderInfo> providers(const ProviderWish& wish = {});

/// "1.17": the version of the loaded library.
std::string library_version();

/// Smaller is better. Providers for debugging come last.
int preference(std::string_view provider);

/// Whether the provider moves all data through the kernel's streams.
bool is_over_sockets(std::string_view provider);
/// As above, and the provider itself manages a connection to each peer, without a layer between.
bool is_plain_sockets(std::string_view provider);

/// Whether TUTTI_OFI_PROVIDER means this provider: its full name, or that of a layer: "tcp".
bool names(std::string_view wanted, std::string_view provider);

}  // namespace tutti::ofi
