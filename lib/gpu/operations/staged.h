// A host's collective on device memory: the input is copied to pinned memory, the operation runs
// there, and the result is copied back, in the order of the caller's stream. No host thread waits
// for the stream.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cuda/operation.h"
#include "cuda/pinned_pool.h"
#include "gpu/operations/device_fold.h"

namespace tutti {

/// Resources that a communicator's staged operations share.
struct StagingArea {
    StagingArea(device::Context in, device::DeviceStream beside_callers)
        : context(std::move(in)), aside(std::move(beside_callers)), pinned(context) {}
    device::Context context;
    device::DeviceStream aside;         // for copies that must not wait for the caller's stream
    mutable device::PinnedPool pinned;  // of messages
    /// tutti's kernels, loaded at the first call. Only the issuing thread calls it, while no
    /// collective runs.
    Result<const device::Kernels*> kernels() const;
    static Result<std::shared_ptr<const StagingArea>> make(const device::Driver& driver,
                                                           device::Ordinal device);

private:
    mutable std::optional<device::Kernels> kernels_;
};

struct StageRequest {
    struct ResultBytes {
        std::size_t at = 0, bytes = 0;
    };
    std::size_t in_bytes = 0, out_bytes = 0;  // from the buffers' starts; 0: the rank has none
    // The caller's buffer is in host memory and used without a copy.
    bool in_on_host = false, out_on_host = false;
    std::vector<ResultBytes> results;  // the ranges of the output that it writes
    std::size_t inputs = 0;            // > 0: launch() gets a list of this many, of in_bytes each
    std::unique_ptr<DeviceFold> fold;  // launch() gets a list, and this adds it up as the input
};

/// Allocates pinned memory, which waits for the device: call it while no collective runs there. The
/// peers of `inner` may use host memory.
Result<std::unique_ptr<DeviceOperation>> stage(std::shared_ptr<const StagingArea> area,
                                               StageRequest request,
                                               std::unique_ptr<Operation> inner);

}  // namespace tutti
