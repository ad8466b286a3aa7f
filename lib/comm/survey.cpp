#include "comm/survey.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t alone_message_bytes = 128 * 1024;  // of one rank: no transport at all

// On one host the preferred transport carries everything. Across hosts the first that can does, and
// those before it serve neighbours.
void name_wire(Terrain& t, const Endpoint& endpoint) {
    t.wire.clear();
    for (const auto& transport : endpoint.transports()) {
        const Capabilities& c = transport->capabilities();
        t.wire += fmt::format("{}{}", t.wire.empty() ? "" : "+", transport->name());
        t.constants = default_constants(t.wire, c);
        if (t.one_host || !c.same_host_only) break;
    }
    if (const Constants* fitted = endpoint.fitted(t.wire)) t.constants = *fitted;
    if (const Constants* tuned = endpoint.tuning().constants_of(t.wire)) t.constants = *tuned;
}

}  // namespace

Terrain survey(const Endpoint& endpoint, Rank ranks, bool one_host) {
    Terrain t;
    t.ranks = ranks;
    t.one_host = one_host;
    const auto& transports = endpoint.transports();
    t.mapped = one_host && !transports.empty() && transports.front()->capabilities().mapped;
    t.max_message_bytes = alone_message_bytes;
    // Across hosts any of them may be met, and a fallback to a later one must carry the messages.
    for (std::size_t i = 0; i < transports.size(); ++i) {
        const std::size_t most = transports[i]->capabilities().max_message_bytes;
        t.max_message_bytes = i == 0 ? most : std::min(t.max_message_bytes, most);
    }
    t.crowding = endpoint.crowding();
    t.tuning = &endpoint.tuning();
    name_wire(t, endpoint);
    return t;
}

}  // namespace tutti
