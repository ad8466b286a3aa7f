// A pool of pinned memory, because allocating and freeing it may wait for the device.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/handles.h"

namespace tutti::device {

/// Any thread. Outlives its leases.
class PinnedPool {
public:
    explicit PinnedPool(Context context) : context_(std::move(context)) {}

    struct GiveBack {
        PinnedPool* pool;
        void operator()(PinnedBuffer* buffer) const { pool->give(buffer); }
    };
    using Lease = std::unique_ptr<PinnedBuffer, GiveBack>;

    /// The smallest free block that is large enough; nullptr: there is none.
    Lease reuse(std::size_t bytes);
    /// Allocates a block. Call it while no work runs that the driver might wait for.
    Result<Lease> allocate(std::size_t bytes);

private:
    void give(PinnedBuffer* buffer);

    const Context context_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<PinnedBuffer>> free_;
};

}  // namespace tutti::device
