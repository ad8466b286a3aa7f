// The handles of the processes that are to meet, in the order of their ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "handles/handle.h"

namespace tutti {

class HandleList {
public:
    /// Decodes and checks them all. The errors name the handle by its index.
    static Result<HandleList> decode(std::span<const ByteView> handles, const Config& config);

    Rank size() const { return static_cast<Rank>(handles_.size()); }
    const Handle& operator[](Rank rank) const { return handles_[static_cast<std::size_t>(rank)]; }
    /// invalid: the process is not in the list.
    Result<Rank> rank_of(const Handle& process) const;

    /// Two lists have the same hash if they are equal; the same set hash, if only their orders
    /// differ.
    uint64_t hash() const;
    uint64_t set_hash() const;

private:
    std::vector<Handle> handles_;
};

}  // namespace tutti
