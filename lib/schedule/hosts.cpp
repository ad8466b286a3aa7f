#include "schedule/hosts.h"

#include <algorithm>
#include <map>

namespace tutti {

Hosts Hosts::in_blocks(Rank ranks, Rank per_host) {
    Hosts h;
    h.ranks_ = ranks;
    h.block_ = std::min(ranks, per_host);
    h.shape_.hosts = (ranks + h.block_ - 1) / h.block_;
    h.shape_.largest = h.block_;
    h.shape_.smallest = h.size_of(h.count() - 1);
    return h;
}

Hosts Hosts::by_label(std::span<const uint64_t> labels) {
    Hosts h;
    h.ranks_ = static_cast<Rank>(labels.size());
    std::map<uint64_t, Rank> numbers;
    std::vector<Rank> sizes;
    for (const uint64_t label : labels) {
        const auto [at, fresh] = numbers.try_emplace(label, static_cast<Rank>(numbers.size()));
        if (fresh) sizes.push_back(0);
        h.host_.push_back(at->second);
        h.local_.push_back(sizes[index(at->second)]++);
    }
    bool blocks = true;
    for (Rank r = 0; r < h.ranks_ && blocks; ++r) blocks = h.host_[index(r)] == r / sizes[0];
    if (blocks) return in_blocks(h.ranks_, sizes[0]);

    h.block_ = 0;
    const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
    h.shape_ = {static_cast<Rank>(sizes.size()), *smallest, *largest};
    Rank before = 0;
    for (const Rank size : sizes) {
        h.before_.push_back(before);
        before += size;
    }
    h.member_.resize(labels.size());
    for (Rank r = 0; r < h.ranks_; ++r)
        h.member_[index(h.before_[index(h.host_[index(r)])] + h.local_[index(r)])] = r;
    return h;
}

}  // namespace tutti
