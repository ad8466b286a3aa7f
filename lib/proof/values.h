// All values that a symbolic run computes, each stored once.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "proof/symbolic.h"

namespace tutti::symbolic {

/// A result's contributions, their order, and the expression that computed it.
struct Content {
    Contributions from;
    Order order;
    uint64_t bits = 0;  // the expression that computed it, operand order and roundings included
    bool operator==(const Content&) const = default;
};

/// Results by number. Tiles repeat each other and ranks forward other ranks' results. So the memory
/// depends on the number of different results (n² for most algorithms that cut the data n ways),
/// not on the number of places that hold one: a place takes eight bytes.
class Values {
public:
    /// arrivals: for a barrier, the number of ranks. A barrier's value implies a set of ranks that
    /// have arrived, one bit for each.
    explicit Values(Rank arrivals = 0) : words_((static_cast<std::size_t>(arrivals) + 63) / 64) {}

    /// Undefined if there are more different results than numbers (Value::most_results). `guess`:
    /// the number of a probable result, from the previous tile. Checking it first saves the search.
    Value combine(Value first, Value second, Form result, uint32_t guess = no_guess);
    Value convert(Value value, Form result, uint32_t guess = no_guess);
    static constexpr uint32_t no_guess = ~0u;

    Content content(Value value) const;
    bool knows(Value value, Rank rank) const;

private:
    Value keep(const Content& content, Form form, uint32_t chunk, uint32_t guess);
    uint32_t& slot_of(const Content& content);
    void grow();
    void note_arrivals(Value value, std::span<uint64_t> known) const;

    std::deque<Content> contents_;
    std::vector<uint32_t> slots_;  // open addressing by bits; 0: free, else number + 1
    std::size_t words_;
    std::vector<uint64_t> known_;  // words_ for each result
};

}  // namespace tutti::symbolic
