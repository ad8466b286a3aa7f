#include "plan/survey.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t alone_message_bytes = 128 * 1024;  // of one rank: no transport at all

Constants constants_of(const Endpoint& endpoint, std::string_view wire, const Capabilities& c,
                       bool within_host) {
    if (const Constants* tuned = endpoint.tuning().constants_of(wire)) return *tuned;
    if (const Constants* fitted = endpoint.fitted(wire)) return *fitted;
    return default_constants(wire, c, within_host);
}

// On one host the preferred transport carries everything. Across hosts the first that can does, and
// those before it serve neighbours.
void name_wire(SelectionInput& t, const Endpoint& endpoint) {
    t.wire.clear();
    const auto transports = endpoint.transports().all();
    for (std::size_t i = 0; i < transports.size(); ++i) {
        const Capabilities c = endpoint.transports().capabilities(i);
        t.wire += fmt::format("{}{}", t.wire.empty() ? "" : "+", transports[i]->name());
        t.constants = constants_of(endpoint, t.wire, c, t.one_host);
        if (t.one_host || !c.same_host_only) break;
    }
}

}  // namespace

SelectionInput survey(const Endpoint& endpoint, Rank ranks, bool one_host) {
    SelectionInput t;
    t.ranks = ranks;
    t.one_host = one_host;
    const auto transports = endpoint.transports().all();
    t.mapped = one_host && !transports.empty() && transports.front()->capabilities().mapped;
    t.max_message_bytes = alone_message_bytes;
    // Across hosts any of them may be met, and a fallback to a later one must carry the messages.
    for (std::size_t i = 0; i < transports.size(); ++i) {
        const std::size_t most = endpoint.transports().capabilities(i).max_message_bytes;
        t.max_message_bytes = i == 0 ? most : std::min(t.max_message_bytes, most);
    }
    t.crowding = endpoint.crowding();
    t.tuning = &endpoint.tuning();
    name_wire(t, endpoint);
    if (!transports.empty())
        t.inner_constants = constants_of(endpoint, transports.front()->name(),
                                         endpoint.transports().capabilities(0), true);
    return t;
}

}  // namespace tutti
