#include "job/connecting/connector.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/log.h"
#include "job/connecting/hidden_peer.h"
#include "net/socket.h"

namespace tutti {

// An unknown rank whose record is not in the store any more has left.
Result<Opened> Connector::open(const ChannelId& id, Deadline deadline) const {
    TUTTI_ASSIGN(const PeerRecord* record, directory_.find_if_there(id.peer, deadline));
    std::string tried;
    bool by_network = false;
    for (const auto& transport : transports_.all()) {
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", transport->name());
        by_network |= !transport->capabilities().same_host_only;
        const auto to = find(*transport, id.peer, deadline);
        if (!to || !transport->may_reach(*to)) continue;
        auto sender = transport->open(id, *to, deadline);
        if (sender) return std::pair{std::move(*sender), transport.get()};
        if (sender.error().code != Code::unsupported)
            return wrap(sender.error(),
                        fmt::format("connecting to rank {} by {}", id.peer, transport->name()));
        tried += fmt::format(" ({})", sender.error().message);
    }
    const bool hidden = by_network && hides(*record, deadline);
    return fail_rank(Code::unsupported, id.peer,
                     "no transport reaches rank {} (host {}){}; tried: {}", id.peer,
                     record->host_id, hidden ? ", which listens on its host's loopback only" : "",
                     tried)
        .advice("{}", hidden ? hidden_peer_advice
                             : "add a transport that reaches that rank to TUTTI_TRANSPORT");
}

JoinedIntrinsics Connector::join_intrinsics(const Group& group, bool one_host,
                                            Deadline deadline) const {
    const auto transports = transports_.all();
    for (std::size_t i = 0; i < transports.size(); ++i) {
        const Transport& transport = *transports[i];
        IntrinsicProvider* provider = transports[i]->intrinsics();
        if (!provider || group.size() > provider->most_ranks()) continue;
        if (transport.capabilities().same_host_only && !one_host) continue;
        // Ranks may get different results here. If joining waits for rank 0, as within a host, all
        // try.
        if (!transport.capabilities().same_host_only && reaches_any(i, group, deadline)) return {};
        GroupRequest request;
        request.comm = group.id();
        request.rank = group.rank();
        request.size = group.size();
        request.streams = streams_;
        for (Rank rank = 0; rank < group.size(); ++rank)
            request.members.push_back(group.in_job(rank));
        request.find = [&](Rank rank) { return find(transport, rank, deadline); };
        auto joined = provider->join(request, deadline);
        if (joined) return {std::move(*joined), provider->name()};
        log::info("rank {}: no {} collectives: {}", rank_, provider->name(),
                  joined.error().message);
        return {};
    }
    return {};
}

// True if one of the first `transports` transports may reach a member.
bool Connector::reaches_any(std::size_t transports, const Group& group, Deadline deadline) const {
    for (Rank rank = 0; transports > 0 && rank < group.size(); ++rank) {
        if (rank == group.rank()) continue;
        for (const auto& transport : transports_.all().first(transports)) {
            const auto address = find(*transport, group.in_job(rank), deadline);
            if (address && transport->may_reach(*address)) return true;
        }
    }
    return false;
}

void Connector::introduce(Rank size, Deadline deadline) const {
    for (const auto& transport : transports_.all()) {
        std::vector<PeerAddress> peers;
        for (Rank rank = 0; rank < size; ++rank) {
            if (rank == rank_) continue;
            if (auto peer = find(*transport, rank, deadline)) peers.push_back(std::move(*peer));
        }
        transport->add_peers(peers);
    }
}

Result<PeerAddress> Connector::find(const Transport& transport, Rank rank,
                                    Deadline deadline) const {
    TUTTI_ASSIGN(const PeerRecord* record, directory_.find(rank, deadline));
    const auto found = record->addresses.find(transport.name());
    if (found == record->addresses.end())
        return fail_rank(Code::unsupported, rank, "rank {} has no transport {}", rank,
                         transport.name())
            .advice("set TUTTI_TRANSPORT to the same value on every rank");
    return PeerAddress{rank, record->host_id, found->second};
}

bool Connector::hides(const PeerRecord& record, Deadline deadline) const {
    const auto address = net::parse_host_port(record.control);
    return record.host_id != host_ && address &&
           net::is_loopback(address->host, deadline).value_or(false);
}

}  // namespace tutti
