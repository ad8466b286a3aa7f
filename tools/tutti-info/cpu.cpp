#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <set>

#include "os/cores.h"
#include "reduce/reduce.h"
#include "reduce/targets.h"
#include "sections.h"

namespace tutti::info {
namespace {

const std::string cpu_folder = "/sys/devices/system/cpu";
const std::string node_folder = "/sys/devices/system/node";

// "Data" and "Instruction" are the first level's; the others are "Unified".
std::string cache_name(const std::string& level, const std::string& type) {
    return "L" + level + (type == "Data" ? "d" : type == "Instruction" ? "i" : "");
}

Fact caches(const Tree& tree) {
    Fact out{"caches", Json::array(), {}};
    const std::string folder = cpu_folder + "/cpu0/cache/";
    for (const std::string& index : tree.names(folder)) {
        const std::string path = folder + index + "/";
        const std::string size = tree.line(path + "size");
        if (size.empty()) continue;
        const std::string name = cache_name(tree.line(path + "level"), tree.line(path + "type"));
        const std::string cores = tree.line(path + "shared_cpu_list");
        out.value.push_back({{"name", name}, {"size", size}, {"shared_by_cores", cores}});
        out.text += fmt::format("{}{} {}", out.text.empty() ? "" : ", ", name, size);
    }
    return out;
}

std::size_t sockets(const Tree& tree) {
    std::set<std::string> packages;
    for (const std::string& name : tree.names(cpu_folder)) {
        const std::string id = tree.line(cpu_folder + "/" + name + "/topology/physical_package_id");
        if (!id.empty()) packages.insert(id);
    }
    return std::max<std::size_t>(packages.size(), 1);
}

std::string model(const Tree& tree) {
    // "model name" on x86; other architectures have no such line
    const std::string name = tree.value("/proc/cpuinfo", "model name");
    return name.empty() ? "unknown" : name;
}

Fact instruction_sets() {
    std::vector<std::string> names;
    for (const std::string_view name : simd_targets()) names.emplace_back(name);
    return {"instruction sets", names,
            fmt::format("{} (the kernels use {})", fmt::join(names, ", "), simd_target())};
}

}  // namespace

Section look_at_cpu(const Tree& tree) {
    utsname names{};
    ::uname(&names);
    const uint32_t usable = count_cores(usable_cores());
    const std::string online = tree.line(cpu_folder + "/online");
    Section out;
    out.facts = {fact("model", model(tree)),
                 fact("architecture", std::string(names.machine)),
                 fact("kernel", fmt::format("{} {}", names.sysname, names.release)),
                 {"usable cores", usable, fmt::format("{} (online: {})", usable, online)},
                 fact("sockets", sockets(tree)),
                 caches(tree),
                 instruction_sets()};
    return out;
}

Section look_at_numa(const Tree& tree) {
    Section out;
    out.none = "the kernel shows no NUMA nodes: all memory is equally far";
    for (const std::string& name : tree.names(node_folder)) {
        if (!name.starts_with("node")) continue;
        const std::string path = node_folder + "/" + name + "/";
        const std::string cores = tree.line(path + "cpulist");
        const std::string memory =
            tree.value(path + "meminfo", "Node " + name.substr(4) + " MemTotal");
        const uint64_t bytes = memory.empty() ? 0 : std::stoull(memory) << 10;
        const std::string distances = tree.line(path + "distance");
        out.items.push_back({.name = name,
                             .facts = {{"cores", cores, "cores " + cores},
                                       {"memory_bytes", bytes, human_bytes(bytes)},
                                       {"distances", distances, "distances " + distances}},
                             .usable = {},
                             .why_not = {},
                             .parts = {}});
    }
    return out;
}

}  // namespace tutti::info
