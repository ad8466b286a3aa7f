// Completions that a port has read from its queue, in their order.
#pragma once

#include <cstddef>
#include <vector>

#include "transports/ofi/buffers.h"

namespace tutti::ofi {

/// First in, first out, in memory that is kept: a steady state allocates nothing.
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
    /// Keeps the others, in order.
    template <typename F>
    void remove_if(F wanted) {
        for (std::size_t left = size(); left > 0; --left)
            if (const T item = pop(); !wanted(item)) push(item);
    }

private:
    std::vector<T> items_;
    std::size_t first_ = 0;
};

/// Completions that were read and wait to be handled. A send counts as finished as soon as its
/// completion is read.
class CompletionReader {
public:
    CompletionReader(const Objects& objects, SendBuffers& sends)
        : objects_(objects), sends_(sends) {}
    /// False: there was nothing to read, or the endpoint is closed.
    bool read();
    bool next(CqEntry& completion) {
        if (waiting_.empty() && !read()) return false;
        completion = waiting_.pop();
        return true;
    }
    /// Read, and not handled yet.
    Queue<CqEntry>& waiting() { return waiting_; }

private:
    bool read_error();

    const Objects& objects_;
    SendBuffers& sends_;
    Queue<CqEntry> waiting_;
};

}  // namespace tutti::ofi
