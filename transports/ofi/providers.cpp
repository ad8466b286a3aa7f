#include "transports/ofi/providers.h"

#include <netdb.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "net/socket.h"
#include "os/signals.h"
#include "transports/ofi/objects.h"

namespace tutti::ofi {
namespace {

constexpr uint64_t needed_caps = FI_MSG | FI_TAGGED;

// Networks that move data without the processor come first, then any network with IP. "net" is what
// "tcp" became after 1.17: quicker than the layer over the older one, and 80 MB smaller.
constexpr std::array preferred = {"cxi",  "efa",  "verbs;ofi_rxm", "opx",
                                  "psm3", "psm2", "psm",           "verbs;ofi_rxd",
                                  "tcp",  "net",  "tcp;ofi_rxm",   "net;ofi_rxm"};
constexpr std::array last_resorts = {"udp;ofi_rxd", "udp", "sockets"};

bool is_shm(std::string_view provider) {
    return names("shm", provider) || names("sm2", provider);
}

bool has_ip_address(const fi_info& info) {
    return info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6;
}

// A host's default address is that of its ordinary network, not of its RDMA devices.
bool is_rdma(std::string_view provider) {
    return names("verbs", provider);
}

std::string host_of(const fi_info& info) {
    std::array<char, NI_MAXHOST> text{};
    if (!info.src_addr || ::getnameinfo(static_cast<const sockaddr*>(info.src_addr),
                                        static_cast<socklen_t>(info.src_addrlen), text.data(),
                                        text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
        return {};
    return text.data();
}

std::string_view text_or_empty(const char* text) {
    return text ? std::string_view(text) : std::string_view{};
}
std::string_view provider_of(const fi_info& info) {
    return text_or_empty(info.fabric_attr->prov_name);
}
std::string_view domain_of(const fi_info& info) {
    return text_or_empty(info.domain_attr->name);
}

/// The user's choice of provider, with its host resolved on this machine.
struct ProviderFilter {
    const ProviderWish& wish;
    std::string host;  // of IP providers
};

// The reason why this entry does not fit; empty: it fits.
std::string objection(const fi_info& info, const ProviderFilter& filter) {
    const std::string_view provider = provider_of(info);
    const ProviderWish& wish = filter.wish;
    if (info.ep_attr->type != FI_EP_RDM) return "it has no reliable datagrams (FI_EP_RDM)";
    if ((info.caps & needed_caps) != needed_caps) return "it has no tagged messages";
    if (!wish.provider.empty() && !names(wish.provider, provider))
        return fmt::format("TUTTI_OFI_PROVIDER is '{}'", wish.provider);
    if (is_shm(provider))
        return wish.provider.empty()
                   ? "it works on one host only, so it is used only if TUTTI_OFI_PROVIDER names it"
                   : "";
    if (has_ip_address(info) && (!is_rdma(provider) || !wish.iface.empty())) {
        const std::string host = host_of(info);
        return host == filter.host ? ""
                                   : fmt::format("its address {} is not {}", host, filter.host);
    }
    if (wish.loopback_only) return "it would be open to the network, and TUTTI_SECRET is not set";
    return {};
}

InfoPtr get_info(const fi_info* hints) {
    fi_info* found = nullptr;
    const SavedSignalHandlers kept(library_code());  // the first time it loads providers
    if (library().fi_getinfo(api_version, nullptr, nullptr, 0, hints, &found) != 0) return nullptr;
    return InfoPtr(found);
}

InfoPtr make_hints() {
    InfoPtr hints(library().fi_dupinfo(nullptr));
    hints->caps = needed_caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = handled_mr_modes;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    return hints;
}

// Lists each provider once; gives reasons only for the requested ones.
std::string describe(const std::vector<ProviderInfo>& all, const ProviderWish& wish) {
    std::string out, last;
    for (const ProviderInfo& one : all) {
        if (!out.empty()) out += one.provider == last ? "" : ", ";
        const bool asked = wish.provider.empty() || names(wish.provider, one.provider);
        if (one.provider != last) out += one.provider;
        if (asked) out += fmt::format(" ({}: {})", one.domain, one.unusable);
        last = one.provider;
    }
    return out.empty() ? "none" : out;
}

// For one of a provider's entries, libfabric's list of endpoint types: reliable datagrams first.
std::vector<const fi_info*> datagrams_first(const fi_info* all) {
    std::vector<const fi_info*> out;
    for (const fi_info* one = all; one; one = one->next) out.push_back(one);
    std::stable_partition(out.begin(), out.end(),
                          [](const fi_info* i) { return i->ep_attr->type == FI_EP_RDM; });
    return out;
}

ProviderInfo row_of(const fi_info& info, const ProviderFilter& filter) {
    ProviderInfo row;
    row.provider = provider_of(info);
    row.fabric = text_or_empty(info.fabric_attr->name);
    row.domain = domain_of(info);
    const uint32_t version = info.fabric_attr->prov_version;
    row.version = fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
    row.unusable = objection(info, filter);
    row.capabilities = library().fi_tostr(&info.caps, FI_TYPE_CAPS);
    return row;
}

}  // namespace

std::string library_version() {
    const uint32_t version = library().fi_version();
    return fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
}

int preference(std::string_view provider) {
    const auto* found = std::find(preferred.begin(), preferred.end(), provider);
    if (found != preferred.end()) return static_cast<int>(found - preferred.begin());
    const auto* last = std::find(last_resorts.begin(), last_resorts.end(), provider);
    const int unknown = static_cast<int>(preferred.size());
    return last == last_resorts.end() ? unknown
                                      : unknown + 1 + static_cast<int>(last - last_resorts.begin());
}

bool names(std::string_view filter, std::string_view provider) {
    if (filter == provider) return true;
    while (!provider.empty()) {
        const std::size_t end = std::min(provider.find(';'), provider.size());
        if (provider.substr(0, end) == filter) return true;
        provider.remove_prefix(std::min(end + 1, provider.size()));
    }
    return false;
}

bool is_over_sockets(std::string_view provider) {
    return names("tcp", provider) || names("net", provider) || names("sockets", provider);
}

bool is_plain_sockets(std::string_view provider) {
    return provider == "tcp" || provider == "net";
}

static Result<std::string> choose_host(const ProviderWish& wish) {
    return net::choose_address({wish.iface, wish.loopback_only, wish.usual_address});
}

Result<InfoPtr> choose_provider(const ProviderWish& wish) {
    TUTTI_TRY(load_library());
    ProviderFilter filter{wish, {}};
    TUTTI_ASSIGN(filter.host, choose_host(wish));
    const InfoPtr all = get_info(make_hints().get());
    const fi_info* best = nullptr;
    for (const fi_info* one = all.get(); one; one = one->next) {
        if (!objection(*one, filter).empty()) continue;
        if (!best || preference(provider_of(*one)) < preference(provider_of(*best))) best = one;
    }
    if (best) return InfoPtr(library().fi_dupinfo(best));
    return fail(Code::unsupported, "libfabric {}: no provider fits{}{}; found: {}",
                library_version(),
                wish.provider.empty() ? "" : " TUTTI_OFI_PROVIDER=", wish.provider,
                describe(providers(wish), wish))
        .advice("{}",
                wish.provider.empty()
                    ? "name one of the found providers with TUTTI_OFI_PROVIDER, or take ofi out "
                      "of TUTTI_TRANSPORT"
                    : "set TUTTI_OFI_PROVIDER to a provider that was found, or remove it");
}

std::vector<ProviderInfo> providers(const ProviderWish& wish) {
    ProviderFilter filter{wish, {}};
    const auto host = choose_host(wish);
    if (host) filter.host = *host;
    std::vector<ProviderInfo> out;
    if (!load_library()) return out;
    const InfoPtr all = get_info(nullptr);
    for (const fi_info* one : datagrams_first(all.get())) {
        const auto same = std::find_if(out.begin(), out.end(), [&](const ProviderInfo& r) {
            return r.provider == provider_of(*one) && r.domain == domain_of(*one) &&
                   r.fabric == text_or_empty(one->fabric_attr->name);
        });
        if (same == out.end()) out.push_back(row_of(*one, filter));
    }
    std::stable_sort(out.begin(), out.end(), [](const ProviderInfo& a, const ProviderInfo& b) {
        return preference(a.provider) < preference(b.provider);
    });
    const auto usable = [](const ProviderInfo& r) { return r.unusable.empty(); };
    if (const auto first = std::find_if(out.begin(), out.end(), usable); first != out.end())
        first->chosen = true;
    return out;
}

}  // namespace tutti::ofi
