// Ways to spread ranks over hosts, for algorithms that care.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "schedule/hosts.h"
#include "schedule/schedule.h"

namespace tutti::test {

struct Layout {
    std::string name;
    Hosts hosts;
};

/// Even, uneven, not contiguous, at random, one rank a host, and all on one.
inline std::vector<Layout> host_layouts(Rank ranks) {
    std::vector<Layout> layouts;
    const auto add = [&](std::string name, auto&& label) {
        std::vector<uint64_t> labels;
        for (Rank r = 0; r < ranks; ++r) labels.push_back(static_cast<uint64_t>(label(r)));
        layouts.push_back({std::move(name), Hosts::by_label(labels)});
    };
    for (const Rank each : {2, 4, 8})
        if (each < ranks) layouts.push_back({"blocks", Hosts::in_blocks(ranks, each)});
    const Rank triples[] = {0, 1, 1, 2, 2, 2};
    add("1+2+3", [&](Rank r) { return r / 6 * 3 + triples[r % 6]; });
    add("all but the last", [&](Rank r) { return r == ranks - 1; });
    add("all but the first", [](Rank r) { return r == 0; });
    add("in turns", [](Rank r) { return r % 3; });
    std::mt19937 random(static_cast<uint32_t>(ranks));
    add("at random", [&](Rank) { return random() % (static_cast<uint32_t>(ranks) / 3 + 1); });
    layouts.push_back({"one each", Hosts::in_blocks(ranks, 1)});
    layouts.push_back({"one host", Hosts::in_blocks(ranks, ranks)});
    return layouts;
}

/// Uneven and scattered hosts for any number of ranks: eight ranks on average, and some twenty at
/// most, because the time of two levels grows with the largest host times the square of the number
/// of hosts.
inline Hosts scattered_hosts(Rank ranks) {
    std::mt19937 random(static_cast<uint32_t>(ranks));
    std::vector<uint64_t> labels;
    for (Rank r = 0; r < ranks; ++r)
        labels.push_back(random() % (static_cast<uint32_t>(ranks) / 8 + 1));
    return Hosts::by_label(labels);
}

/// Another: uneven, and not contiguous. For whatever wants one only.
inline Hosts mixed_hosts(Rank ranks) {
    std::vector<uint64_t> labels;
    for (Rank r = 0; r < ranks; ++r)
        labels.push_back(r % 5 == 4 ? 1 : static_cast<uint64_t>(r) / 3);
    return Hosts::by_label(labels);
}

}  // namespace tutti::test
