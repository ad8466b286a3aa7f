// Objects that keep their address, because a library may hold it. A steady state allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::ucx {

/// T has `T* next`.
template <typename T>
class Pool {
public:
    T& take() {
        if (!free_) {
            blocks_.push_back(std::make_unique<std::array<T, block_size>>());
            for (T& one : *blocks_.back()) give(one);
        }
        T& one = *free_;
        free_ = std::exchange(one.next, nullptr);
        return one;
    }
    void give(T& one) {
        one.next = free_;
        free_ = &one;
    }
    /// Includes the free objects.
    template <typename Do>
    void each(Do act) {
        for (const auto& block : blocks_)
            for (T& one : *block) act(one);
    }

private:
    static constexpr std::size_t block_size = 64;
    std::vector<std::unique_ptr<std::array<T, block_size>>> blocks_;
    T* free_ = nullptr;
};

}  // namespace tutti::ucx
