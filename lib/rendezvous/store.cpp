#include "rendezvous/store.h"

#include <algorithm>

#include "rendezvous/store_kinds.h"

namespace tutti {
namespace {

constexpr StoreKind kinds[] = {
    {"tcp", "tcp://host:port", open_tcp_store},
    {"file", "file:///directory", open_file_store},
};

std::string examples(std::string_view separator) {
    std::string out;
    for (const StoreKind& kind : kinds) {
        if (!out.empty()) out += separator;
        out += kind.example;
    }
    return out;
}

}  // namespace

std::span<const StoreKind> store_kinds() {
    return kinds;
}

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options) {
    if (options.url.empty())
        return fail(Code::invalid, "no store is set, so the ranks cannot find each other")
            .advice("set TUTTI_STORE to {}, the same on every rank", examples(" or "));
    const auto at = options.url.find("://");
    const std::string_view scheme = std::string_view(options.url).substr(0, at);
    const auto* kind = std::find_if(std::begin(kinds), std::end(kinds),
                                    [&](const StoreKind& k) { return k.scheme == scheme; });
    if (at == std::string::npos || kind == std::end(kinds))
        return fail(Code::invalid, "store \"{}\" is of an unknown kind", options.url)
            .advice("set TUTTI_STORE to {}", examples(" or "));
    return kind->open(options);
}

}  // namespace tutti
