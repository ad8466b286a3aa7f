// A host's collective on device memory: the input is copied to pinned memory, the operation runs
// there, and the result is copied back, all in the order of the caller's stream, for which nobody
// waits.
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
    device::DeviceStream aside;         // for what cannot wait for the caller's
    mutable device::PinnedPool pinned;  // of messages
    /// Kernels of our own, loaded with the first question: while no collective runs, and by the
    /// issuing thread.
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
    // The caller's is in host memory, and used where it is.
    bool in_on_host = false, out_on_host = false;
    std::vector<ResultBytes> results;  // of the output: what the operation writes
    std::size_t inputs = 0;            // > 0: launch() is given a list of so many, of in_bytes each
    std::unique_ptr<DeviceFold> fold;  // it is given a list of which this makes the input
};

/// Allocates pinned memory, which waits for the device: while no collective runs there. `inner` may
/// be a rank's whose peers use host memory.
Result<std::unique_ptr<DeviceOperation>> stage(std::shared_ptr<const StagingArea> area,
                                               StageRequest request,
                                               std::unique_ptr<Operation> inner);

}  // namespace tutti
