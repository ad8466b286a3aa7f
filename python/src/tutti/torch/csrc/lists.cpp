#include "lists.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace tutti_torch {
namespace {

// Smaller tensors are packed into one call: a call costs more than copying such a tensor twice
// (docs/reference/benchmarks.md has both).
constexpr std::size_t packed_bytes = std::size_t{128} << 10;
constexpr std::size_t packed_bytes_of_0_1_0 = std::size_t{256} << 10;

uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}

}  // namespace

std::vector<std::vector<std::size_t>> batches_of(const std::vector<at::Tensor>& tensors,
                                                 bool as_0_1_0) {
    const std::size_t limit = as_0_1_0 ? packed_bytes_of_0_1_0 : packed_bytes;
    std::vector<std::vector<std::size_t>> batches, alone;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].nbytes() >= limit) {
            alone.push_back({i});
            continue;
        }
        const auto same = std::find_if(batches.begin(), batches.end(), [&](const auto& batch) {
            return tensors[batch.front()].scalar_type() == tensors[i].scalar_type();
        });
        if (same != batches.end())
            same->push_back(i);
        else
            batches.push_back({i});
    }
    batches.insert(batches.end(), alone.begin(), alone.end());
    return batches;
}

std::vector<std::vector<std::size_t>> batches_of_blocks(const std::vector<at::Tensor>& tensors,
                                                        bool together) {
    const auto on_host = [](const at::Tensor& tensor) { return tensor.is_cpu(); };
    if (together && std::all_of(tensors.begin(), tensors.end(), on_host))
        return batches_of(tensors, false);
    std::vector<std::vector<std::size_t>> alone;
    for (std::size_t i = 0; i < tensors.size(); ++i) alone.push_back({i});
    return alone;
}

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& tensors,
                               const std::vector<std::size_t>& places) {
    std::vector<at::Tensor> list;
    list.reserve(places.size());
    for (const std::size_t place : places) list.push_back(tensors[place]);
    return list;
}

ListName::ListName(const std::vector<at::Tensor>& tensors) {
    constexpr std::string_view prefix = "list ";
    constexpr std::string_view digits =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t hash = mixed(1, tensors.size());
    for (const at::Tensor& tensor : tensors)
        hash = mixed(mixed(hash, static_cast<uint64_t>(tensor.scalar_type())),
                     static_cast<uint64_t>(tensor.numel()));
    std::copy(prefix.begin(), prefix.end(), text_.begin());
    for (std::size_t i = prefix.size(); i + 1 < text_.size(); ++i, hash /= digits.size())
        text_[i] = digits[hash % digits.size()];
}

}  // namespace tutti_torch
