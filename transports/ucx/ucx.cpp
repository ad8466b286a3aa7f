// The UCX transport: the settings that UCX gets before it starts, and the fabric's engine over its
// workers.
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "fabric/fabric.h"
#include "net/resolve.h"
#include "net/socket.h"
#include "transports/catalog.h"
#include "transports/ucx/cause.h"
#include "transports/ucx/port.h"
#include "transports/ucx/segments.h"

namespace tutti {
namespace {

using fabric::Port;
using fabric::PortEvents;
using ucx::Library;

// So large that rendezvous' round trips do not matter, so small that a payload is still in the
// cache when it is reduced.
constexpr std::size_t max_message_bytes = 256 * 1024;

struct Setting {
    std::string name;  // without the prefix UCX_
    std::string value;
    std::string other_name;
};

// The interface that an address belongs to, or the text itself if it is an interface's name.
std::string device_of(const std::string& iface, const std::string& address) {
    std::string name = iface;
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return name;
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
        const int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if (family != AF_INET && family != AF_INET6) continue;
        net::SocketAddress own;
        own.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&own.storage, i->ifa_addr, own.bytes);
        if (own.host() == address) name = i->ifa_name;
    }
    freeifaddrs(first);
    return name;
}

/// UCX settings that tutti needs. The user's own settings take precedence.
std::vector<Setting> wanted_settings(const std::string& device) {
    std::vector<Setting> out = {
        // By default UCX's shared memory declares that it cannot notice a peer's death, and is not
        // used if deaths must be reported.
        {"MM_ERROR_HANDLING", "y"},
        // UCX's interval of checks whether a peer's process lives.
        {"KEEPALIVE_INTERVAL", "500ms"},
        // Room for a piece (UcxPort) with its headers. UCX 1.13 has the second name for it.
        {"TCP_RX_SEG_SIZE", "128K", "RX_SEG_SIZE"},
        {"WARN_UNUSED_ENV_VARS", "n"},
    };
    if (!device.empty()) out.push_back({"NET_DEVICES", device});
    if (const std::string folder = ucx::segment_folder(); !folder.empty())
        out.push_back({"POSIX_DIR", folder, "DIR"});
    return out;
}

class UcxFactory final : public fabric::PortFactory {
public:
    UcxFactory(const Library& ucx, std::string device)
        : ucx_(ucx), device_(std::move(device)), version_(ucx.version) {
        // The one setting that peers must share: UCX aborts a process that receives more at once
        // than it reads.
        if (const char* const segment = std::getenv("UCX_TCP_RX_SEG_SIZE"))
            version_ += fmt::format("+UCX_TCP_RX_SEG_SIZE={}", segment);
    }
    std::string_view name() const override { return "ucx"; }
    std::string version() const override { return version_; }
    std::string path() const override {
        const char* transports = std::getenv("UCX_TLS");
        return fmt::format("{}/{}", transports ? transports : "all",
                           device_.empty() ? "all devices" : device_);
    }

    Result<std::unique_ptr<Port>> open(PortEvents& events) override {
        TUTTI_ASSIGN(ucp_context_h context, start());
        auto port = std::make_unique<ucx::UcxPort>(ucx_, events);
        const int64_t start_ns = now_ns();
        if (auto opened = port->open(context); !opened) {
            Error error = std::move(opened).error();
            error.message += ucx::cause_since(start_ns);
            return tl::unexpected(std::move(error));
        }
        return port;
    }
    Result<ucp_context_h> start() const;

private:
    const Library& ucx_;
    const std::string device_;
    std::string version_;
};

// A context for each worker: a context that workers of several threads share needs locks.
Result<ucp_context_h> UcxFactory::start() const {
    ucp_config_t* config = nullptr;
    ucs_status_t status = ucx_.ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK)
        return fail(Code::invalid, "UCX rejects its settings (the variables UCX_…): {}",
                    ucx_.ucs_status_string(status))
            .advice("correct or remove the environment variables UCX_…; 'ucx_info -c' lists them");
    for (const Setting& setting : wanted_settings(device_)) {
        if (std::getenv(("UCX_" + setting.name).c_str()) != nullptr) continue;
        // A name that this UCX version rejects is a setting that it does not need.
        for (const std::string& name : {setting.name, setting.other_name})
            if (!name.empty()) ucx_.ucp_config_modify(config, name.c_str(), setting.value.c_str());
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    ucp_context_h context = nullptr;
    const int64_t start_ns = now_ns();
    status = ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
    ucx_.ucp_config_release(config);
    if (status == UCS_OK) return context;
    return fail(Code::system, "UCX does not start: {}{}", ucx_.ucs_status_string(status),
                ucx::cause_since(start_ns))
        .advice(
            "remove UCX_TLS and UCX_NET_DEVICES, or set them to what 'ucx_info -d' lists; raise "
            "the limit that UCX names, if it names one");
}

Result<std::unique_ptr<fabric::PortFactory>> make_factory(const TransportContext& context) {
    TUTTI_ASSIGN(const Library* library, ucx::load_library());
    std::string device;
    if (!context.iface.empty()) {
        TUTTI_ASSIGN(const std::string address, net::choose_address({context.iface}));
        device = device_of(context.iface, address);
    } else if (context.loopback_only) {
        device = "lo";
    }
    return std::make_unique<UcxFactory>(*library, std::move(device));
}

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(const TransportContext& context) {
    return fabric::make_fabric_transport(
        context, make_factory(context),
        {.name = "ucx", .max_message_bytes = max_message_bytes, .latency_us = 2});
}

Result<> ucx_takes_devices() {
    if (!ucx::has_cuda_messages)
        return fail(Code::unsupported, "tutti was built without GPU code (-Ddevice=disabled)")
            .advice("build tutti with -Ddevice=enabled");
    TUTTI_ASSIGN(const Library* ucx, ucx::load_library());
    TUTTI_ASSIGN(ucp_context_h context, UcxFactory(*ucx, "").start());
    const bool takes = ucx::knows_devices(*ucx, context);
    ucx->ucp_cleanup(context);
    if (takes) return {};
    if (!ucx::built_with_cuda(*ucx))
        return fail(Code::unsupported,
                    "UCX has no CUDA here: it was built without it, or its libuct_cuda does not "
                    "load")
            .advice("install a UCX that was built with CUDA");
    return fail(Code::unsupported, "UCX finds no GPU, or UCX_TLS excludes its CUDA transports")
        .advice("remove UCX_TLS, or add cuda to it; nvidia-smi shows whether there is a GPU");
}

}  // namespace tutti
