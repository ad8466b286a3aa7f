// A queue that keeps its memory: a steady state allocates nothing.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::fabric {

/// First in, first out.
template <typename T>
class Queue {
public:
    bool empty() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_; }
    void push(const T& item) { items_.push_back(item); }
    T pop() {
        const T item = items_[first_++];
        if (empty()) {
            clear();
        } else if (first_ >= 1024 && first_ >= items_.size() / 2) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
        }
        return item;
    }
    void clear() {
        items_.clear();
        first_ = 0;
    }
    /// Removes the items for which act(item) is true. Calls act once for each, in order.
    template <typename F>
    void remove_if(F act) {
        for (std::size_t left = size(); left > 0 && !empty(); --left)
            if (const T item = pop(); !act(item)) push(item);
    }

private:
    std::vector<T> items_;
    std::size_t first_ = 0;
};

}  // namespace tutti::fabric
