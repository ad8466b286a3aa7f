// The simulation's only source of chance. The same seed gives the same numbers on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simulation {

/// splitmix64. Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators,
/// OOPSLA 2014.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
    /// 0 to n - 1; 0 if n is 0.
    uint64_t below(uint64_t n) { return n == 0 ? 0 : next() % n; }
    /// Both ends included.
    template <typename T>
    T between(T low, T high) {
        return low + static_cast<T>(below(static_cast<uint64_t>(high - low) + 1));
    }
    /// True in `of` cases out of a hundred.
    bool percent(uint64_t of) { return below(100) < of; }
    /// From low to about high, each order of magnitude as likely as another.
    int64_t spread(int64_t low, int64_t high) {
        uint64_t doublings = 0;
        while (low << (doublings + 1) <= high) ++doublings;
        const int64_t least = low << below(doublings + 1);
        return least + static_cast<int64_t>(below(static_cast<uint64_t>(least)));
    }
    template <typename T>
    const T& pick(const std::vector<T>& of) {
        return of[static_cast<std::size_t>(below(of.size()))];
    }

private:
    uint64_t state_;
};

}  // namespace simulation
