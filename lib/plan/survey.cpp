#include "plan/survey.h"

#include <algorithm>

#include "select/distance.h"

namespace tutti {
namespace {

constexpr std::size_t alone_message_bytes = 128 * 1024;  // of a single rank, without a transport

// True if hosts lie far apart and every rank takes the large messages that this needs. A rank of
// version 0.1.0 states fewer bytes, and then all ranks choose as it does.
bool is_far(const Capabilities& c) {
    return c.over_ip && c.latency_us >= far_round_trip_us / 2 &&
           c.max_message_bytes > c.usual_message_bytes;
}

std::size_t usual_message_bytes(const Capabilities& c) {
    return c.usual_message_bytes > 0 ? std::min(c.max_message_bytes, c.usual_message_bytes)
                                     : c.max_message_bytes;
}

Constants constants_of(const Endpoint& endpoint, std::string_view wire, const Capabilities& c,
                       bool within_host) {
    const Constants* measured = endpoint.tuning().constants_of(wire);
    if (!measured) measured = endpoint.fitted(wire);
    const Constants constants = measured ? *measured : default_constants(wire, c, within_host);
    if (within_host || !is_far(c)) return constants;
    return over_distance(constants, c.latency_us, measured != nullptr);
}

// On one host the preferred transport carries everything. Across hosts the first transport that
// crosses hosts does, and the transports before it connect ranks of one host.
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

// As in name_wire(), the first transport between hosts tells how far apart they are. Ranks that it
// does not connect fall back to a later one, which must carry its messages.
void look_far(SelectionInput& t, const Endpoint& endpoint) {
    if (t.one_host) return;
    std::size_t most = 0;
    for (std::size_t i = 0; i < endpoint.transports().all().size(); ++i) {
        const Capabilities c = endpoint.transports().capabilities(i);
        if (c.same_host_only) continue;
        if (most == 0 && !is_far(c)) return;
        most = most == 0 ? c.max_message_bytes : std::min(most, c.max_message_bytes);
        t.credits = std::min(t.credits, c.credits);
    }
    if (most > t.max_message_bytes) t.far_message_bytes = most;
}

}  // namespace

SelectionInput survey(const Endpoint& endpoint, Rank ranks, bool one_host) {
    SelectionInput t;
    t.ranks = ranks;
    t.one_host = one_host;
    const auto transports = endpoint.transports().all();
    t.mapped = one_host && !transports.empty() && transports.front()->capabilities().mapped;
    t.max_message_bytes = alone_message_bytes;
    // Across hosts ranks may use any transport, and one to which they fall back must carry the
    // messages, too.
    for (std::size_t i = 0; i < transports.size(); ++i) {
        const std::size_t most = usual_message_bytes(endpoint.transports().capabilities(i));
        t.max_message_bytes = i == 0 ? most : std::min(t.max_message_bytes, most);
    }
    t.crowding = endpoint.crowding();
    t.tuning = &endpoint.tuning();
    name_wire(t, endpoint);
    look_far(t, endpoint);
    if (!transports.empty())
        t.inner_constants = constants_of(endpoint, transports.front()->name(),
                                         endpoint.transports().capabilities(0), true);
    return t;
}

}  // namespace tutti
