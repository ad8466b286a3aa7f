// Symbolic values. The verifier runs schedules on these instead of numbers: a value says which
// ranks' inputs a region's contents were computed from, and in which order, but not what they are.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"

namespace tutti::symbolic {

/// Mixes one word into a hash (splitmix64's finaliser).
constexpr uint64_t mix(uint64_t hash, uint64_t word) {
    uint64_t x = hash * 0x9e3779b97f4a7c15ull + word + 0x632be59bd9b4e019ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/// The multiset of a value's contributions, as a hash: each (rank, chunk) has a random 128-bit
/// number, and a reduction adds them. Different multisets have equal sums with probability 2^-128.
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

/// The order in which contributions were combined, for operators that do not commute: a hash of the
/// list of ranks, which is a polynomial modulo the prime 2^61 - 1. The hash of two joined lists
/// follows from their hashes, so (a + b) + c and a + (b + c) have the same one.
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
    // 9 is arbitrary.
    static Order of(Rank rank) { return {mix(static_cast<uint64_t>(rank), 9) % prime, base}; }
    friend Order operator+(const Order& first, const Order& second) {
        const uint64_t sum = times(first.hash, second.power) + second.hash;
        return {sum >= prime ? sum - prime : sum, times(first.power, second.power)};
    }
    bool operator==(const Order&) const = default;
};

/// A region's symbolic value in one word: a rank's input, or the number of a result in a table
/// (values.h). Equal words are equal values, bit by bit. An undefined value means that no step has
/// written the region.
class Value {
public:
    static constexpr uint32_t most_results = (1u << 28) - 1;  // the word has 28 bits for a number

    Value() = default;
    static Value input(Rank rank, uint32_t chunk) {
        return Value(Kind::input, Form::raw, chunk, static_cast<uint32_t>(rank));
    }
    static Value result(Form form, uint32_t chunk, uint32_t number) {
        return Value(Kind::result, form, chunk, number);
    }

    bool defined() const { return word_ != 0; }
    bool is_input() const { return static_cast<Kind>(word_ >> 62) == Kind::input; }
    Form form() const { return static_cast<Form>(word_ >> 60 & 3); }
    uint32_t chunk() const { return static_cast<uint32_t>(word_); }
    /// The rank of an input, or the number of a result.
    uint32_t number() const { return static_cast<uint32_t>(word_ >> 32 & most_results); }

    /// The same value in another form. Only for conversions that change no bit (Values::convert).
    Value widened(Form form) const {
        return Value(static_cast<Kind>(word_ >> 62), form, chunk(), number());
    }
    bool operator==(const Value&) const = default;

private:
    enum class Kind : uint8_t { nothing, input, result };
    Value(Kind kind, Form form, uint32_t chunk, uint32_t number)
        : word_(static_cast<uint64_t>(kind) << 62 | static_cast<uint64_t>(form) << 60 |
                static_cast<uint64_t>(number) << 32 | chunk) {}

    uint64_t word_ = 0;
};

}  // namespace tutti::symbolic
