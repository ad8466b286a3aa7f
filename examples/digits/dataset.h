// The handwritten digits, cut into a training and a test part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace digits {

inline constexpr std::size_t pixels = 64;
inline constexpr std::size_t classes = 10;

struct Image {
    std::array<double, pixels> values{};  // 0 … 1
    std::size_t label = 0;
};

struct Dataset {
    std::vector<Image> training;
    std::vector<Image> test;
};

/// Shuffles the same way everywhere, which std::shuffle does not promise.
template <typename T>
void shuffle(std::vector<T>& list, std::mt19937_64& random) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random() % i]);
}

/// The images in a random order, the last test_share of them for testing. Throws std::runtime_error
/// with the file and line.
Dataset load_dataset(const std::string& path, double test_share, uint64_t seed);

/// digits.csv.gz next to the program, else in the source tree.
std::string default_data_path();

}  // namespace digits
