#include "job/known_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "collectives/catalog.h"
#include "transports/catalog.h"

namespace tutti {
namespace {

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Result<> check_transports(const Config& config) {
    std::vector<std::string_view> built;
    for (const TransportKind& kind : transports()) built.push_back(kind.name);
    for (const std::string& name : config.transports)
        if (!contains(built, name))
            return fail(Code::invalid, "unknown transport '{}'", name)
                .advice("use a transport that this build has: {}", fmt::join(built, ", "));
    return {};
}

Result<> check_algorithm(const Config& config) {
    std::vector<std::string_view> names = {"flat"};
    // Most algorithms serve several collectives, and are listed once for each.
    for (const Algorithm& a : algorithms())
        if (!contains(names, a.name)) names.push_back(a.name);
    if (config.algo.empty() || contains(names, config.algo)) return {};
    return fail(Code::invalid, "there is no algorithm '{}'", config.algo)
        .advice("use one of: {}", fmt::join(names, ", "));
}

Result<> set_known(Config& config, std::string_view key, std::string_view value) {
    Config changed = config;
    TUTTI_TRY(set_config(changed, key, value));
    const auto known = key == "transport" ? check_transports(changed)
                       : key == "algo"    ? check_algorithm(changed)
                                          : Result<>();
    if (!known) return wrap(known.error(), fmt::format("setting '{}'", key));
    config = std::move(changed);
    return {};
}

}  // namespace tutti
