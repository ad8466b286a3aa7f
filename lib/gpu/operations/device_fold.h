// Adds up several buffers on their device, in the accumulator's type, so that one buffer comes to
// the host instead of all (docs/adr/0013-who-adds.md).
#pragma once

#include "cuda/kernels.h"
#include "reduce/reduce.h"

namespace tutti {

class DeviceFold {
public:
    struct FoldRequest {
        Dtype dtype = Dtype::uint8;
        Op op = Op::sum;
        std::size_t count = 0;
        int32_t inputs = 0;
    };
    /// Whether this build has kernels at all.
    static bool built();
    /// Allocates device memory: call it while no collective runs. unsupported without kernels.
    static Result<std::unique_ptr<DeviceFold>> make(const device::Context& context,
                                                    const device::Kernels& kernels,
                                                    const FoldRequest& request);

    /// Puts the sum on the stream; the stream's context is current.
    Result<> put(const void* const* inputs, device::StreamHandle stream) const;
    /// The sum, in device memory; valid for later work on the stream of put().
    const std::byte* result() const { return result_.data(); }
    std::size_t result_bytes() const { return result_bytes_; }

private:
    DeviceFold(const device::Kernels& kernels, const FoldRequest& request,
               device::KernelHandle kernel, device::DeviceBuffer result, std::size_t result_bytes)
        : kernels_(kernels),
          r_(request),
          kernel_(kernel),
          result_(std::move(result)),
          result_bytes_(result_bytes) {}

    const device::Kernels& kernels_;
    const FoldRequest r_;
    const device::KernelHandle kernel_;
    const device::DeviceBuffer result_;
    const std::size_t result_bytes_;
};

}  // namespace tutti
