// Splits a communicator into smaller ones.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace tutti {

/// One split of a communicator. Collective.
class Splitter {
public:
    explicit Splitter(Communicator& whole) : core_(whole.core_), issuer_(whole.issuer_) {}

    /// Ranks of one colour get a communicator, in the order of their keys, then of their ranks;
    /// a negative colour gets none.
    Result<std::shared_ptr<Communicator>> by(std::string_view name, int64_t color, int key);

private:
    /// A rank tells the others its wish.
    struct Wish {
        int64_t color = 0;  // negative: it joins no part
        int64_t key = 0;
        int64_t first_free_id = 0;
        int64_t host = 0;  // read by ranks of version 0.1.0 only
        int64_t splits_offload = 0;
    };
    const Wish& wish_of(Rank rank) const { return wishes_[static_cast<std::size_t>(rank)]; }
    Result<> exchange_wishes(int64_t color, int key);
    Result<uint32_t> claim_ids(uint32_t count);
    uint32_t index_of(int64_t color) const;
    std::vector<Rank> members_of(int64_t color) const;
    std::unique_ptr<OffloadShare> split_offload(int64_t color, const std::vector<Rank>& members);
    Result<> assemble(Communicator& part);
    Error part_failed(Communicator* part, Error error);

    Core& core_;
    Issuer& issuer_;
    std::vector<Wish> wishes_;  // by rank
};

}  // namespace tutti
