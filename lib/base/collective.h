// The kinds of collective, by number and name: in tags on the wire, in catalogs, in error messages.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace tutti {

enum class Collective : uint8_t {
    allreduce,
    broadcast,
    barrier,
    reduce,
    allgather,
    reduce_scatter,
    gather,
    scatter,
    alltoall,
    scan,
    exscan,
};

/// The partition of a collective's data among the ranks.
enum class Cut : uint8_t {
    whole,   // one message of the same length on every rank
    blocks,  // a block for every rank
    pairs,   // a block for every pair of source and destination
};

struct CollectiveTraits {
    std::string_view name;
    Cut cut;
    bool reduces;
    bool rooted;
};

inline constexpr CollectiveTraits collective_traits[] = {
    {"allreduce", Cut::whole, true, false},
    {"broadcast", Cut::whole, false, true},
    {"barrier", Cut::whole, false, false},
    {"reduce", Cut::whole, true, true},
    {"allgather", Cut::blocks, false, false},
    {"reduce_scatter", Cut::blocks, true, false},
    {"gather", Cut::blocks, false, true},
    {"scatter", Cut::blocks, false, true},
    {"alltoall", Cut::pairs, false, false},
    {"scan", Cut::whole, true, false},
    {"exscan", Cut::whole, true, false},
};
inline constexpr int collective_count = static_cast<int>(std::size(collective_traits));

constexpr const CollectiveTraits& traits_of(Collective collective) {
    return collective_traits[static_cast<std::size_t>(collective)];
}

/// Also for a number from a wire that is not a collective: "unknown".
inline std::string_view collective_name(Collective collective) {
    const auto index = static_cast<std::size_t>(collective);
    return index < std::size(collective_traits) ? collective_traits[index].name : "unknown";
}

}  // namespace tutti
