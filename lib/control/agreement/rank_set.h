// A set of a communicator's ranks, one bit each: agreement messages are made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace tutti {

/// Sets that are combined have the same size. A rank that the communicator lacks is never a member.
class RankSet {
public:
    RankSet() = default;
    explicit RankSet(Rank size) : size_(size), words_((static_cast<std::size_t>(size) + 63) / 64) {}
    static RankSet all(Rank size);

    bool contains(Rank rank) const {
        return rank >= 0 && rank < size_ && (bits_of(rank) >> (rank % 64) & 1) != 0;
    }
    bool includes(const RankSet& others) const;
    bool empty() const { return count() == 0; }
    Rank size() const { return size_; }
    Rank count() const;
    /// In ascending order.
    std::vector<Rank> ranks() const;

    /// True if the rank is new.
    bool insert(Rank rank);
    /// True if the set has grown.
    bool merge(const RankSet& others);
    RankSet without(const RankSet& others) const;

    void encode(ByteWriter& out) const;
    /// nullopt: the bytes end early, or name a rank that a communicator of that size lacks.
    static std::optional<RankSet> decode(ByteReader& in, Rank size);

    bool operator==(const RankSet&) const = default;

private:
    uint64_t bits_of(Rank rank) const { return words_[static_cast<std::size_t>(rank) / 64]; }

    Rank size_ = 0;
    std::vector<uint64_t> words_;
};

/// For messages: "no rank", "rank 3", "ranks 3, 5".
std::string ranks_text(const RankSet& set);

}  // namespace tutti
