// Scratch memory of operations, separate from the caller's buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

namespace tutti {

using SharedBytes = std::shared_ptr<std::byte[]>;

/// One block that all operations of a stream share, because they run one after the other. The last
/// operation frees it. If an operation needs more, later bound operations share a larger block.
/// Each block is at least half as large again as the one before, so that all outgrown blocks
/// together are not much larger than it. Not thread-safe.
class WorkMemory {
public:
    SharedBytes at_least(std::size_t bytes) {
        SharedBytes block = latest_.lock();
        if (block && bytes <= bytes_) return block;
        const std::size_t grown = block ? bytes_ + bytes_ / 2 : 0;
        block = of_its_own(std::max(bytes, grown));
        bytes_ = std::max(bytes, grown);
        latest_ = block;
        return block;
    }

    /// The latest block's, while an operation has it.
    std::size_t bytes() const { return latest_.expired() ? 0 : bytes_; }

    /// For an operation that may run beside others.
    static SharedBytes of_its_own(std::size_t bytes) {
        return std::make_shared_for_overwrite<std::byte[]>(bytes);
    }

private:
    std::weak_ptr<std::byte[]> latest_;
    std::size_t bytes_ = 0;
};

}  // namespace tutti
