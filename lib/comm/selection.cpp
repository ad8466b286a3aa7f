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

struct Row {
    std::string_view name;
    std::string_view reason;
};

Row pick(Collective collective, std::size_t bytes, const Terrain& t) {
    const bool flat = !t.intrinsic.empty() && bytes <= t.intrinsic_bytes;
    const auto peers = static_cast<std::size_t>(std::max<Rank>(1, t.ranks - 1));
    switch (collective) {
        case Collective::allreduce:
            if (flat && bytes * peers <= flat_allreduce_bytes)
                return {t.intrinsic, "one host, and small enough that everyone reads everything"};
            if (bytes <= doubling_bytes)
                return {"recursive_doubling", "small: the number of rounds decides"};
            return {"ring", "large: the bytes per rank decide"};
        case Collective::broadcast:
            if (flat && bytes <= flat_broadcast_bytes)
                return {t.intrinsic, "one host, and small enough that everyone reads the root's"};
            if (bytes <= binomial_bytes && t.ranks > 2)
                return {"binomial", "small: the number of rounds decides"};
            return {"chain", "large: each rank sends the bytes once, in a pipeline"};
        case Collective::barrier:
            if (flat) return {t.intrinsic, "one host: everyone sees everyone's word"};
            return {"dissemination", "log2(ranks) rounds"};
        default:
            return {};
    }
}

std::string names_of(Collective collective, const Terrain& terrain) {
    std::string names;
    for (const Algorithm& a : algorithms())
        if (a.collective == collective)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", a.name);
    if (!terrain.intrinsic.empty()) names += fmt::format(", {}", terrain.intrinsic);
    return names;
}

}  // namespace

Result<Choice> select(Collective collective, std::size_t bytes, std::string_view wanted,
                      const Terrain& terrain) {
    const Row row = wanted.empty() ? pick(collective, bytes, terrain) : Row{wanted, "asked for"};
    Choice choice;
    choice.name = row.name;
    choice.reason = row.reason;
    if (!terrain.intrinsic.empty() && row.name == terrain.intrinsic) {
        if (bytes <= terrain.intrinsic_bytes) return choice;
        return fail(Code::unsupported, "algorithm {} takes at most {} bytes, not {}; there are: {}",
                    row.name, terrain.intrinsic_bytes, bytes, names_of(collective, terrain));
    }
    choice.algorithm = find_algorithm(collective, row.name);
    if (!choice.algorithm)
        return fail(Code::unsupported, "there is no algorithm '{}' for {} here; there are: {}",
                    row.name, collective_name(collective), names_of(collective, terrain));
    if (choice.algorithm->unsupported)
        if (const std::string why = choice.algorithm->unsupported(terrain.ranks); !why.empty())
            return fail(Code::unsupported, "algorithm {} with {} ranks: {}", row.name,
                        terrain.ranks, why);
    choice.name = choice.algorithm->name;
    choice.lanes = !terrain.mapped && bytes >= second_lane_bytes ? 2 : 1;
    choice.message_bytes = terrain.max_message_bytes;
    if (choice.name == "chain" && terrain.ranks > 1) {
        const std::size_t stage = std::bit_ceil(bytes / choice.lanes / pipeline_stages + 1);
        choice.message_bytes = std::clamp(stage, 8 * kib, terrain.max_message_bytes);
    }
    return choice;
}

}  // namespace tutti
