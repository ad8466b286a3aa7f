// Symbolic values: what a region would hold, as far as correctness can tell.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace tutti::symbolic {

/// Mixes one word into a hash (splitmix64's finaliser).
constexpr uint64_t mix(uint64_t hash, uint64_t word) {
    uint64_t x = hash * 0x9e3779b97f4a7c15ull + word + 0x632be59bd9b4e019ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/// Who contributed: each (rank, chunk) has a random 128-bit number, a reduction adds them. Equal
/// sums mean equal multisets of contributions but with probability 2^-128.
struct Contributions {
    uint64_t low = 0, high = 0;
    static Contributions of(Rank rank, uint32_t chunk) {
        const uint64_t seed = mix(static_cast<uint64_t>(rank), chunk);
        return {mix(seed, 1), mix(seed, 2)};
    }
    Contributions& operator+=(const Contributions& other) {
        low += other.low;
        high += other.high;
        return *this;
    }
    bool operator==(const Contributions&) const = default;
};

__extension__ typedef unsigned __int128 uint128;

/// In which order they were combined: the list of contributions as a polynomial over the prime
/// 2^61 - 1, so that joining two lists is joining their hashes, however they were bracketed.
struct Order {
    uint64_t hash = 0;
    uint64_t power = 1;  // base^length

    static constexpr uint64_t prime = (uint64_t{1} << 61) - 1;
    static constexpr uint64_t base = 0x1a2b3c4d5e6f7081ull % prime;
    static constexpr uint64_t times(uint64_t a, uint64_t b) {
        const auto product = static_cast<uint128>(a) * b;
        const auto folded =
            static_cast<uint64_t>(product & prime) + static_cast<uint64_t>(product >> 61);
        return folded >= prime ? folded - prime : folded;
    }
    static Order of(Rank rank) { return {mix(static_cast<uint64_t>(rank), 9) % prime, base}; }
    friend Order operator+(const Order& first, const Order& second) {
        return {(times(first.hash, second.power) + second.hash) % prime,
                times(first.power, second.power)};
    }
    bool operator==(const Order&) const = default;
};

struct Value {
    bool defined = false;
    Form form = Form::raw;
    uint32_t chunk = 0;
    Contributions from;
    Order order;
    uint64_t bits = 0;  // the expression that made it, operand order and roundings included
    std::vector<uint64_t> known;  // barrier: whose arrival this implies, one bit a rank

    static Value input(Rank rank, uint32_t chunk) {
        Value v;
        v.defined = true;
        v.chunk = chunk;
        v.from = Contributions::of(rank, chunk);
        v.order = Order::of(rank);
        v.bits = v.from.low;
        return v;
    }
    /// A barrier's: knows of its own arrival.
    static Value arrival(Rank rank, Rank ranks) {
        Value v = input(rank, 0);
        v.known.resize((static_cast<std::size_t>(ranks) + 63) / 64);
        v.known[static_cast<std::size_t>(rank) / 64] |= uint64_t{1} << (rank % 64);
        return v;
    }
    bool knows(Rank rank) const {
        return known[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1;
    }
};

inline Value combine(const Value& first, const Value& second, Form result) {
    Value v = first;
    v.from += second.from;
    v.order = first.order + second.order;
    v.bits = mix(mix(mix(first.bits, second.bits), 3), static_cast<uint64_t>(result));
    v.form = result;
    for (std::size_t i = 0; i < v.known.size(); ++i) v.known[i] |= second.known[i];
    return v;
}

inline Value convert(const Value& value, Form result) {
    Value v = value;
    // Widening is exact, and what a reduction does to a raw operand anyway: only the end rounds.
    const bool widens = v.form == Form::raw && result == Form::partial;
    if (v.form != result && !widens) v.bits = mix(v.bits, 5 + static_cast<uint64_t>(result));
    v.form = result;
    return v;
}

}  // namespace tutti::symbolic
