#include "comm/selection.h"

#include <algorithm>
#include <bit>

#include "collectives/catalog.h"

namespace tutti {
namespace {

constexpr std::size_t kib = 1024;

// One-shot exchange moves (ranks - 1) × bytes per rank; past this a ring's 2 × bytes is less.
constexpr std::size_t flat_allreduce_bytes = 64 * kib;
constexpr std::size_t flat_broadcast_bytes = 32 * kib;
// Where log2(n) rounds of the whole message cost as much as a ring's 2(n-1) rounds of 1/n of it.
constexpr std::size_t doubling_bytes = 16 * kib;
constexpr std::size_t binomial_bytes = 64 * kib;
// A wire's second lane hides the turn-around of the first; mapped memory has none to hide.
constexpr std::size_t second_lane_bytes = 1024 * kib;
constexpr std::size_t pipeline_stages = 16;  // messages per lane that fill a chain
constexpr std::size_t hierarchy_tiles = 4;   // so that one is on the wire, one in shared memory

struct Row {
    std::string_view name;
    std::string_view reason;
};

bool two_levels(const Terrain& t) {
    return t.hosts.hosts >= 2 && t.hosts.largest >= 2;
}

constexpr Row hierarchical{"hierarchical", "large, several ranks a host: each byte leaves it once"};

Row pick_allreduce(const Question& q, bool flat, const Terrain& t) {
    const std::size_t bytes = q.bytes;
    const auto peers = static_cast<std::size_t>(std::max<Rank>(1, t.ranks - 1));
    if (flat && bytes * peers <= flat_allreduce_bytes)
        return {t.intrinsic, "one host, and small enough that everyone reads everything"};
    if (bytes <= doubling_bytes)
        return {"recursive_doubling", "small: the number of rounds decides"};
    if (q.ordered) return {"rabenseifner", "large: the bytes per rank decide, in rank order"};
    if (two_levels(t)) return hierarchical;
    return {"ring", "large: the bytes per rank decide"};
}

Row pick_broadcast(std::size_t bytes, bool flat, const Terrain& t) {
    if (flat && bytes <= flat_broadcast_bytes)
        return {t.intrinsic, "one host, and small enough that everyone reads the root's"};
    if (bytes <= binomial_bytes && t.ranks > 2)
        return {"binomial", "small: the number of rounds decides"};
    if (two_levels(t)) return hierarchical;
    return {"chain", "large: each rank sends the bytes once, in a pipeline"};
}

Row pick(const Question& q, const Terrain& t) {
    const bool flat = !t.intrinsic.empty() && q.bytes <= t.intrinsic_bytes;
    const bool small = q.bytes <= doubling_bytes;
    constexpr std::string_view rounds = "small: the number of rounds decides";
    constexpr std::string_view bytes = "large: the bytes per rank decide";
    switch (q.collective) {
        case Collective::allreduce:
            return pick_allreduce(q, flat, t);
        case Collective::broadcast:
            return pick_broadcast(q.bytes, flat, t);
        case Collective::barrier:
            if (flat) return {t.intrinsic, "one host: everyone sees everyone's word"};
            return {"dissemination", "log2(ranks) rounds"};
        case Collective::reduce:
            if (q.ordered && !small) return {"binomial", "large, in rank order"};
            if (!small && two_levels(t)) return hierarchical;
            return small ? Row{"binomial", rounds} : Row{"chain", "large: in a pipeline"};
        case Collective::allgather:
            return small ? Row{"bruck", rounds} : Row{"ring", bytes};
        case Collective::reduce_scatter:
            if (q.ordered) return {"direct", "in rank order"};
            return small ? Row{"circulant", rounds} : Row{"ring", bytes};
        case Collective::gather:
        case Collective::scatter:
            if (small && !q.uneven && t.ranks > 4) return {"binomial", rounds};
            return {"direct", "each block travels once"};
        case Collective::alltoall:
            if (small && !q.uneven && t.ranks > 4) return {"bruck", rounds};
            return {"pairwise", "each block travels once"};
        case Collective::scan:
        case Collective::exscan:
            return small ? Row{"recursive_doubling", rounds} : Row{"chain", "large: in a pipeline"};
    }
    return {};
}

// Empty, or why the algorithm cannot do it.
std::string refusal(const Algorithm& a, const Question& q, const Terrain& t) {
    if (q.uneven && a.even_only)
        return "its blocks pass through ranks that do not know their lengths";
    if (q.ordered && a.reorders)
        return "contributions meet in another order than the ranks', and the operator is not "
               "commutative";
    return a.unsupported ? a.unsupported(t.ranks, t.hosts) : std::string();
}

std::string names_of(const Question& q, const Terrain& terrain) {
    std::string names;
    for (const Algorithm& a : algorithms())
        if (a.collective == q.collective && refusal(a, q, terrain).empty())
            names += fmt::format("{}{}", names.empty() ? "" : ", ", a.name);
    if (!terrain.intrinsic.empty()) names += fmt::format(", {}", terrain.intrinsic);
    return names;
}

// Into how many messages a lane's share is cut at least, so that all of a pipeline has work. 0: it
// is none.
std::size_t pipeline_messages(std::string_view name, Collective collective, const Terrain& t) {
    if (name == "chain") return pipeline_stages;
    if (name != "hierarchical" || traits_of(collective).cut != Cut::whole) return 0;
    const Rank pieces = collective == Collective::allreduce ? t.hosts.hosts : 2;
    return hierarchy_tiles * static_cast<std::size_t>(t.hosts.largest * pieces);
}

}  // namespace

Result<Choice> select(const Question& q, const Terrain& terrain) {
    const Row row = q.wanted.empty() ? pick(q, terrain) : Row{q.wanted, "asked for"};
    Choice choice;
    choice.name = row.name;
    choice.reason = row.reason;
    if (!terrain.intrinsic.empty() && row.name == terrain.intrinsic) {
        if (!q.uneven && q.bytes <= terrain.intrinsic_bytes) return choice;
        return fail(Code::unsupported, "algorithm {} takes at most {} bytes, not {}; there are: {}",
                    row.name, terrain.intrinsic_bytes, q.bytes, names_of(q, terrain));
    }
    choice.algorithm = find_algorithm(q.collective, row.name);
    if (!choice.algorithm)
        return fail(Code::unsupported, "there is no algorithm '{}' for {} here; there are: {}",
                    row.name, collective_name(q.collective), names_of(q, terrain));
    if (const std::string why = refusal(*choice.algorithm, q, terrain); !why.empty())
        return fail(Code::unsupported, "algorithm {} with {} ranks: {}; there are: {}", row.name,
                    terrain.ranks, why, names_of(q, terrain));
    choice.name = choice.algorithm->name;
    choice.lanes = !terrain.mapped && q.bytes >= second_lane_bytes ? 2 : 1;
    choice.message_bytes = terrain.max_message_bytes;
    const std::size_t messages = pipeline_messages(choice.name, q.collective, terrain);
    if (messages > 0 && terrain.ranks > 1) {
        const std::size_t stage = std::bit_ceil(q.bytes / choice.lanes / messages + 1);
        choice.message_bytes = std::clamp(stage, 8 * kib, terrain.max_message_bytes);
    }
    return choice;
}

}  // namespace tutti
