#include "control/agreement/knowledge.h"

#include <algorithm>

namespace tutti {
void Knowledge::accuse(Rank accuser, Rank accused) {
    const Accusation added{accuser, accused};
    if (accuser == accused || accusations.size() >= max_accusations) return;
    const auto at = std::lower_bound(accusations.begin(), accusations.end(), added);
    if (at == accusations.end() || *at != added) accusations.insert(at, added);
}

bool Knowledge::merge(const Knowledge& other) {
    const std::size_t before = accusations.size();
    for (const Accusation& one : other.accusations) accuse(one.accuser, one.accused);
    bool grown = accusations.size() != before;
    grown |= dead.merge(other.dead);
    grown |= left.merge(other.left);
    grown |= leavers.merge(other.leavers);
    return grown;
}

RankSet Knowledge::silent() const {
    const Rank size = dead.size();
    RankSet excluded(size);
    while (true) {
        std::vector<int> accusers(static_cast<std::size_t>(size));
        for (const auto& [accuser, accused] : accusations)
            if (!excluded.contains(accuser) && !excluded.contains(accused))
                ++accusers[static_cast<std::size_t>(accused)];
        Rank worst = nobody;
        int most = 1;
        for (Rank rank = 0; rank < size; ++rank) {
            if (accusers[static_cast<std::size_t>(rank)] < most) continue;
            worst = rank;
            most = accusers[static_cast<std::size_t>(rank)];
        }
        if (worst == nobody) return excluded;
        excluded.insert(worst);
    }
}

RankSet Knowledge::excluded() const {
    RankSet ranks = dead;
    ranks.merge(left);
    ranks.merge(leavers);
    if (!accusations.empty()) ranks.merge(silent());
    return ranks;
}

void Knowledge::encode(ByteWriter& out) const {
    dead.encode(out);
    left.encode(out);
    leavers.encode(out);
    out.put(static_cast<uint32_t>(accusations.size()));
    for (const Accusation& one : accusations) out.put(one.accuser).put(one.accused);
}

std::optional<Knowledge> Knowledge::decode(ByteReader& in, Rank size) {
    Knowledge known(size);
    for (RankSet* set : {&known.dead, &known.left, &known.leavers}) {
        auto ranks = RankSet::decode(in, size);
        if (!ranks) return std::nullopt;
        *set = std::move(*ranks);
    }
    const auto count = in.get<uint32_t>();
    if (count > max_accusations) return std::nullopt;
    const auto in_size = [&](Rank rank) { return rank >= 0 && rank < size; };
    for (uint32_t i = 0; i < count; ++i) {
        Accusation one;
        one.accuser = in.get<Rank>();
        one.accused = in.get<Rank>();
        if (!in.ok() || !in_size(one.accuser) || !in_size(one.accused)) return std::nullopt;
        if (i > 0 && one <= known.accusations.back()) return std::nullopt;
        if (one.accuser == one.accused) return std::nullopt;
        known.accusations.push_back(one);
    }
    return known;
}

}  // namespace tutti
