#include "transports/catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "sections.h"

namespace tutti::info {
namespace {

/// A transport that a build may lack. switched_off: its option of meson_options.txt was disabled.
struct Optional {
    std::string_view name;
    std::string_view summary;
    std::string_view library;
    std::string_view package;
    bool switched_off;
};
constexpr Optional optional_transports[] = {
    {"ucx", "RDMA networks, through UCX", "UCX", "libucx-dev", TUTTI_UCX_SWITCHED_OFF},
    {"ofi", "RDMA networks, through libfabric", "libfabric", "libfabric-dev",
     TUTTI_OFI_SWITCHED_OFF},
};

std::string why_absent(const Optional& o) {
    if (o.switched_off)
        return fmt::format("this build has no {}: it was switched off (-D{}=disabled)", o.library,
                           o.name);
    return fmt::format("this build has no {}: {} was missing when it was built", o.library,
                       o.package);
}

Item item_of(const Device& device) {
    return {.name = device.name,
            .facts = {{"provider", device.provider, device.provider},
                      {"detail", device.detail, device.detail}},
            .usable = device.usable,
            .why_not = device.why_not,
            .parts = {}};
}

/// The kinds of memory that a transport sends from and receives into.
std::vector<Fact> memory_of(const TransportKind& kind) {
    if (!kind.takes_devices) return {{"memory", {"host"}, "host memory"}};
    const auto takes = kind.takes_devices();
    if (takes) return {{"memory", {"host", "cuda"}, "host and CUDA memory"}};
    const std::string reason = error_text(takes.error());
    return {{"memory", {"host"}, fmt::format("host memory, not CUDA's: {}", reason)},
            {"no_cuda_memory", reason, ""}};
}

Item item_of(const TransportKind& kind) {
    const std::string summary(kind.summary);
    Item out{.name = std::string(kind.name),
             .facts = {{"summary", summary, summary}},
             .usable = true,
             .why_not = {},
             .parts = {}};
    for (Fact& fact : memory_of(kind)) out.facts.push_back(std::move(fact));
    if (kind.devices == nullptr) return out;
    for (const Device& device : kind.devices()) out.parts.push_back(item_of(device));
    out.usable = std::any_of(out.parts.begin(), out.parts.end(),
                             [](const Item& device) { return device.usable == true; });
    if (out.usable == false)
        out.why_not = out.parts.empty() ? "it finds no device" : "none of its devices is usable";
    return out;
}

}  // namespace

Section look_at_transports(const Tree&) {
    Section out;
    for (const TransportKind& kind : transports()) out.items.push_back(item_of(kind));
    for (const Optional& o : optional_transports) {
        const auto built = transports();
        if (std::any_of(built.begin(), built.end(),
                        [&](const auto& k) { return k.name == o.name; }))
            continue;
        const std::string summary(o.summary);
        out.items.push_back({.name = std::string(o.name),
                             .facts = {{"summary", summary, summary}},
                             .usable = false,
                             .why_not = why_absent(o),
                             .parts = {}});
    }
    return out;
}

}  // namespace tutti::info
