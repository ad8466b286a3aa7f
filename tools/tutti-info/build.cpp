#include <fmt/ranges.h>

#include "base/version.h"
#include "sections.h"
#include "transports/catalog.h"

namespace tutti::info {

Section look_at_build(const Tree&) {
    std::vector<std::string> names;
    for (const TransportKind& kind : transports()) names.emplace_back(kind.name);
    return {.facts = {fact("version", std::string(version())),
                      fact("compiler", TUTTI_COMPILER),
                      fact("build type", TUTTI_BUILD_TYPE),
                      {"transports", names, fmt::format("{}", fmt::join(names, ", "))}},
            .items = {},
            .none = {},
            .advice = {}};
}

}  // namespace tutti::info
