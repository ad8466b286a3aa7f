/**
 * @file buffers.hpp
 * @brief Buffer types of tutti.hpp and their checks. Included by tutti.hpp.
 */
#ifndef TUTTI_BUFFERS_HPP
#define TUTTI_BUFFERS_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tutti/tutti.h"

namespace tutti {
// The inline namespace changes the symbols' names: the library has internal classes of the same
// names, and a program linked with the static library would otherwise mix the two.
inline namespace cxx {

/// A failed call. what() is tutti_last_error()'s sentence.
class Error : public std::runtime_error {
public:
    Error(tutti_status status, int rank, const std::string& message, int device = -1)
        : std::runtime_error(message), status_(status), rank_(rank), device_(device) {}
    tutti_status status() const { return status_; }
    /// The rank at fault; -1 if none is known.
    int rank() const { return rank_; }
    /// The device at fault, in the trainer layer; -1 if none is known.
    int device() const { return device_; }

private:
    tutti_status status_;
    int rank_;
    int device_;
};

/// Throws the thread's last error unless status is TUTTI_OK.
inline void check(tutti_status status) {
    if (status == TUTTI_OK) return;
    const std::string text = tutti_last_error();
    throw Error(status, tutti_last_error_rank(), text.empty() ? tutti_status_string(status) : text);
}

namespace detail {
template <typename T>
constexpr tutti_dtype dtype_for() {
    if constexpr (std::same_as<T, float>) return TUTTI_FLOAT32;
    if constexpr (std::same_as<T, double>) return TUTTI_FLOAT64;
    if constexpr (std::same_as<T, std::byte>) return TUTTI_UINT8;
    if constexpr (std::is_integral_v<T> && !std::same_as<T, bool>) {
        const tutti_dtype u = std::is_unsigned_v<T> ? 1 : 0;  // each unsigned follows its signed
        if constexpr (sizeof(T) == 1) return TUTTI_INT8 + u;
        if constexpr (sizeof(T) == 2) return TUTTI_INT16 + u;
        if constexpr (sizeof(T) == 4) return TUTTI_INT32 + u;
        if constexpr (sizeof(T) == 8) return TUTTI_INT64 + u;
    }
    return -1;
}
}  // namespace detail

/// The dtype of a C++ element type.
template <typename T>
inline constexpr tutti_dtype dtype_of = detail::dtype_for<std::remove_cv_t<T>>();

/// A C++ type that a buffer's elements may have: it has a dtype.
template <typename T>
concept Element = (dtype_of<T> >= 0);
/// A buffer that tutti reads: a contiguous range whose elements have a dtype.
template <typename R>
concept InputBuffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;
/// A buffer that tutti also writes: an InputBuffer whose elements are not const.
template <typename R>
concept Buffer =
    InputBuffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// The inputs of an allreduce_multi: a range of InputBuffers.
template <typename L>
concept InputList = std::ranges::input_range<const L> && InputBuffer<std::ranges::range_value_t<L>>;

/// Lengths or starts of blocks, in elements: one for each rank, or empty where a call allows it.
using Counts = std::span<const std::size_t>;

namespace detail {
template <typename R>
constexpr tutti_dtype dtype_in = dtype_of<std::ranges::range_value_t<R>>;

[[noreturn]] inline void refuse(const std::string& message, const std::string& advice) {
    throw Error(TUTTI_ERR_INVALID, -1, message + ". What to do: " + advice);
}

// Elements per block. Throws unless input and output hold their numbers of blocks.
template <typename I, typename O>
std::size_t block_count(const I& in, const O& out, std::size_t in_blocks, std::size_t out_blocks) {
    const std::size_t in_size = std::ranges::size(in), out_size = std::ranges::size(out);
    const std::size_t count = in_size / in_blocks;
    if (in_size == count * in_blocks && out_size == count * out_blocks) return count;
    const std::string sizes = "input has " + std::to_string(in_size) + " elements, output has " +
                              std::to_string(out_size);
    if (in_blocks == 1 && out_blocks == 1) refuse(sizes, "pass two ranges of one size");
    refuse(sizes, "pass an input of " + std::to_string(in_blocks) + " and an output of " +
                      std::to_string(out_blocks) + " blocks of one length");
}

inline void check_lists(std::size_t ranks, Counts counts, Counts displacements) {
    if (counts.size() == ranks && (displacements.empty() || displacements.size() == ranks)) return;
    refuse(std::to_string(counts.size()) + " counts and " + std::to_string(displacements.size()) +
               " displacements for " + std::to_string(ranks) + " ranks",
           "pass one of each for every rank, or no displacements");
}

// The index one past a range's last block, in elements.
inline std::size_t row_end(Counts counts, Counts displacements) {
    std::size_t end = 0, packed = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::size_t start = displacements.empty() ? packed : displacements[i];
        if (counts[i] > 0) end = std::max(end, start + counts[i]);
        packed += counts[i];
    }
    return end;
}

// A range must hold all of its blocks.
inline void check_row(const char* name, std::size_t size, Counts counts, Counts displacements) {
    const std::size_t end = row_end(counts, displacements);
    if (end > size)
        refuse(std::string(name) + " has " + std::to_string(size) + " elements, its blocks need " +
                   std::to_string(end),
               "pass a longer range, or correct counts and displacements");
}

inline void check_own(const char* name, std::size_t size, std::size_t count) {
    if (size != count)
        refuse(std::string(name) + " has " + std::to_string(size) +
                   " elements, this rank's count is " + std::to_string(count),
               "pass a range of as many elements as this rank's count");
}

inline const std::size_t* or_null(Counts list) {
    return list.empty() ? nullptr : list.data();
}

// The address of each range in the list; throws unless each has count elements.
template <typename L>
std::vector<const void*> starts_of(const L& list, std::size_t count) {
    std::vector<const void*> starts;
    for (const auto& in : list) {
        if (std::ranges::size(in) != count)
            refuse("input " + std::to_string(starts.size()) + " has " +
                       std::to_string(std::ranges::size(in)) + " elements, output has " +
                       std::to_string(count),
                   "pass inputs of the output's size");
        starts.push_back(std::ranges::data(in));
    }
    return starts;
}

// A collective's arguments, from the buffers on to the dtype.
template <typename I, typename O>
auto arguments(const I& in, O& out, std::size_t count) {
    static_assert(dtype_in<I> == dtype_in<O>, "input and output have different element types");
    const void* from = std::ranges::data(in);
    void* to = std::ranges::data(out);
    return std::tuple(from, to, count, dtype_in<O>);
}
}  // namespace detail

}  // namespace cxx
}  // namespace tutti

#endif
