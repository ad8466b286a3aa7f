#include "gpu_libraries.h"

#include <link.h>

#include <cstdlib>

#include "cuda/driver.h"
#include "cuda/links.h"
#include "transports/catalog.h"

namespace tutti::info {
namespace {

std::string setting(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
}

/// The path of a library that this process has loaded and whose name contains `part`; "" if there
/// is none.
std::string file_of(std::string part) {
    std::pair<const std::string, std::string> search{std::move(part), {}};
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& [wanted, file] = *static_cast<decltype(search)*>(data);
            if (std::string_view(info->dlpi_name).find(wanted) == std::string_view::npos) return 0;
            file = info->dlpi_name;
            return 1;
        },
        &search);
    return search.second;
}

}  // namespace

GpuLibrary cuda_driver() {
    const auto driver = device::find_driver(setting("TUTTI_CUDA_LIBRARY", "auto"));
    if (!driver) return {error_text(driver.error()), false};
    const int version = (*driver)->version;
    const std::string file = file_of((*driver)->path);
    return {fmt::format("CUDA {}.{} ({})", version / 1000, version % 1000 / 10,
                        file.empty() ? (*driver)->path : file),
            true};
}

GpuLibrary nccl() {
    const auto library = device_libraries()[0].load(setting("TUTTI_NCCL_LIBRARY", ""));
    if (!library) return {error_text(library.error()), false};
    std::string text = (*library)->describe();
    const std::string file = file_of("libnccl");
    if (text.find('/') == std::string::npos && !file.empty()) text += ": " + file;
    return {std::move(text), true};
}

void add_gpu_links(Section& out) {
    const auto driver = device::find_driver(setting("TUTTI_CUDA_LIBRARY", "auto"));
    if (!driver) return;
    const auto devices = device::linked_devices(**driver);
    if (!devices) {
        out.advice.push_back(error_text(devices.error()));
        return;
    }
    for (std::size_t from = 0; from < devices->size(); ++from) {
        const device::LinkedDevice& gpu = (*devices)[from];
        Json links = Json::array();
        std::string text;
        for (std::size_t to = 0; to < gpu.links.size(); ++to) {
            const auto name = from == to ? std::string_view("-") : link_name(gpu.links[to]);
            links.push_back(name);
            text += fmt::format("{:<7}", name);
        }
        out.facts.push_back({fmt::format("gpu {} links", from),
                             {{"bus", gpu.bus}, {"name", gpu.name}, {"links", std::move(links)}},
                             fmt::format("{} {} {}", text, gpu.bus, gpu.name)});
    }
}

}  // namespace tutti::info
