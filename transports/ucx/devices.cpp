// Lists UCX's transports and their devices on this machine for people, without a communicator.
#include <dlfcn.h>
#include <ucp/api/ucp_version.h>
#include <uct/api/uct.h>

#include <algorithm>

#include "transports/catalog.h"
#include "transports/ucx/library.h"

namespace tutti {
namespace {

constexpr const char* file_name = "libuct.so.0";

#define TUTTI_UCT_FUNCTIONS(X)    \
    X(uct_query_components)       \
    X(uct_release_component_list) \
    X(uct_component_query)        \
    X(uct_md_config_read)         \
    X(uct_config_release)         \
    X(uct_md_open)                \
    X(uct_md_close)               \
    X(uct_md_query_tl_resources)  \
    X(uct_release_tl_resource_list)

/// The layer below UCP. Its structures are those of the version that tutti was built with.
struct Uct {
#define TUTTI_UCT_DECLARE(function) decltype(&::function) function = nullptr;
    TUTTI_UCT_FUNCTIONS(TUTTI_UCT_DECLARE)
#undef TUTTI_UCT_DECLARE
    decltype(&::ucs_status_string) ucs_status_string = nullptr;
};

Device trouble(std::string name, std::string why_not) {
    return {.provider = "",
            .name = std::move(name),
            .detail = "",
            .usable = false,
            .why_not = std::move(why_not)};
}

std::string built_version() {
    return fmt::format("{}.{}", UCP_API_MAJOR, UCP_API_MINOR);
}

Result<Uct> load(const ucx::Library& library) {
    void* handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(Code::unsupported, "UCX cannot be loaded: {}", dlerror())
            .advice("install all of UCX's libraries in one version (Debian: libucx0)");
    Uct uct;
    uct.ucs_status_string = library.ucs_status_string;
#define TUTTI_UCT_LOAD(function)                                                       \
    uct.function = reinterpret_cast<decltype(uct.function)>(dlsym(handle, #function)); \
    if (!uct.function)                                                                 \
        return fail(Code::unsupported, "UCX has no " #function)                        \
            .advice("install UCX {}, which tutti was built with", built_version());
    TUTTI_UCT_FUNCTIONS(TUTTI_UCT_LOAD)
#undef TUTTI_UCT_LOAD
    return uct;
}

std::string_view kind_of(uct_device_type_t type) {
    switch (type) {
        case UCT_DEVICE_TYPE_NET:
            return "network";
        case UCT_DEVICE_TYPE_SHM:
            return "between processes of this host";
        case UCT_DEVICE_TYPE_ACC:
            return "memory of an accelerator";
        case UCT_DEVICE_TYPE_SELF:
            return "within a process";
        default:
            return {};
    }
}

// A memory domain is UCX's registration target: an adapter, or a way of sharing memory.
void add_domain(std::vector<Device>& out, const Uct& uct, uct_component_h component,
                const std::string& domain) {
    uct_md_config_t* config = nullptr;
    ucs_status_t status = uct.uct_md_config_read(component, nullptr, nullptr, &config);
    uct_md_h md = nullptr;
    if (status == UCS_OK) {
        status = uct.uct_md_open(component, domain.c_str(), config, &md);
        uct.uct_config_release(config);
    }
    if (status != UCS_OK) {
        out.push_back(trouble(domain, uct.ucs_status_string(status)));
        return;
    }
    uct_tl_resource_desc_t* resources = nullptr;
    unsigned count = 0;
    if (uct.uct_md_query_tl_resources(md, &resources, &count) == UCS_OK) {
        for (unsigned i = 0; i < count; ++i)
            out.push_back({.provider = resources[i].tl_name,
                           .name = resources[i].dev_name,
                           .detail = std::string(kind_of(resources[i].dev_type)),
                           .usable = true,
                           .why_not = ""});
        uct.uct_release_tl_resource_list(resources);
    }
    uct.uct_md_close(md);
}

void add_component(std::vector<Device>& out, const Uct& uct, uct_component_h component) {
    uct_component_attr_t attributes{};
    attributes.field_mask =
        UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct.uct_component_query(component, &attributes) != UCS_OK) return;
    std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains.data();
    if (domains.empty() || uct.uct_component_query(component, &attributes) != UCS_OK) return;
    for (const auto& domain : domains) add_domain(out, uct, component, domain.md_name);
}

/// UCT is usable only in the version that tutti was built with: its structures change.
bool is_known(const ucx::Library& library) {
    return library.version == built_version();
}

}  // namespace

bool ucx::built_with_cuda(const Library& library) {
    const auto uct = is_known(library) ? load(library) : Result<Uct>(tl::unexpected(Error{}));
    uct_component_h* components = nullptr;
    unsigned count = 0;
    if (!uct || uct->uct_query_components(&components, &count) != UCS_OK) return false;
    bool found = false;
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attributes{};
        attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        found |= uct->uct_component_query(components[i], &attributes) == UCS_OK &&
                 std::string_view(attributes.name).starts_with("cuda");
    }
    uct->uct_release_component_list(components);
    return found;
}

std::vector<Device> ucx_devices() {
    const auto library = ucx::load_library();
    if (!library) return {trouble("UCX", library.error().message)};
    if (!is_known(**library))
        return {{.provider = "",
                 .name = "UCX " + (*library)->version,
                 .detail = "not listed: tutti was built with " + built_version(),
                 .usable = true,
                 .why_not = ""}};
    const auto uct = load(**library);
    if (!uct) return {trouble("UCX", uct.error().message)};
    uct_component_h* components = nullptr;
    unsigned count = 0;
    const ucs_status_t status = uct->uct_query_components(&components, &count);
    if (status != UCS_OK) return {trouble("UCX", uct->ucs_status_string(status))};
    std::vector<Device> out;
    for (unsigned i = 0; i < count; ++i) add_component(out, *uct, components[i]);
    uct->uct_release_component_list(components);
    std::stable_partition(out.begin(), out.end(),
                          [](const Device& d) { return d.detail == kind_of(UCT_DEVICE_TYPE_NET); });
    return out;
}

}  // namespace tutti
