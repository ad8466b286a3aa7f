#include "control/agreement/rank_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

namespace tutti {

RankSet RankSet::all(Rank size) {
    RankSet set(size);
    for (Rank rank = 0; rank < size; ++rank) set.insert(rank);
    return set;
}

bool RankSet::includes(const RankSet& others) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
        if ((others.words_[i] & ~words_[i]) != 0) return false;
    return true;
}

Rank RankSet::count() const {
    Rank members = 0;
    for (const uint64_t word : words_) members += std::popcount(word);
    return members;
}

std::vector<Rank> RankSet::ranks() const {
    std::vector<Rank> members;
    for (Rank rank = 0; rank < size_; ++rank)
        if (contains(rank)) members.push_back(rank);
    return members;
}

bool RankSet::insert(Rank rank) {
    if (rank < 0 || rank >= size_ || contains(rank)) return false;
    words_[static_cast<std::size_t>(rank) / 64] |= uint64_t{1} << (rank % 64);
    return true;
}

bool RankSet::merge(const RankSet& others) {
    if (includes(others)) return false;
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
    return true;
}

RankSet RankSet::without(const RankSet& others) const {
    RankSet rest = *this;
    for (std::size_t i = 0; i < words_.size(); ++i) rest.words_[i] &= ~others.words_[i];
    return rest;
}

void RankSet::encode(ByteWriter& out) const {
    for (const uint64_t word : words_) out.put(word);
}

std::optional<RankSet> RankSet::decode(ByteReader& in, Rank size) {
    RankSet set(size);
    for (uint64_t& word : set.words_) word = in.get<uint64_t>();
    if (!in.ok() || !all(size).includes(set)) return std::nullopt;
    return set;
}

std::string ranks_text(const RankSet& set) {
    const std::vector<Rank> ranks = set.ranks();
    if (ranks.empty()) return "no rank";
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace tutti
