// A set of numbers that are inserted almost in order and never removed, stored as ranges.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace tutti {

class IdSet {
public:
    bool contains(uint32_t id) const {
        const auto after = ranges_.upper_bound(id);
        return after != ranges_.begin() && id < std::prev(after)->second;
    }
    void insert(uint32_t id) {
        if (contains(id)) return;
        uint64_t end = uint64_t{id} + 1;
        if (const auto next = ranges_.find(end); next != ranges_.end()) {
            end = next->second;
            ranges_.erase(next);
        }
        const auto after = ranges_.upper_bound(id);
        if (after != ranges_.begin() && std::prev(after)->second == id)
            std::prev(after)->second = end;
        else
            ranges_[id] = end;
    }
    std::size_t ranges() const { return ranges_.size(); }

private:
    std::map<uint64_t, uint64_t> ranges_;  // first, one past the last
};

}  // namespace tutti
