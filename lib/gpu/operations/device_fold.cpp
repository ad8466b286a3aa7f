#include "gpu/operations/device_fold.h"

#include <algorithm>

#include "reduce/fold.h"

namespace tutti {
namespace {

constexpr std::size_t threads_per_block = 256, most_blocks = 2048;

}  // namespace

bool DeviceFold::built() {
    return !fold::device_image().empty();
}

Result<std::unique_ptr<DeviceFold>> DeviceFold::make(const device::Context& context,
                                                     const device::Kernels& kernels,
                                                     const FoldRequest& request) {
    TUTTI_ASSIGN(const Reducer reducer, Reducer::make(request.dtype, request.op));
    const std::string name = fmt::format("tutti_fold_{}_{}", static_cast<int>(request.dtype),
                                         static_cast<int>(request.op));
    TUTTI_ASSIGN(const device::KernelHandle kernel, kernels.find(name));
    const std::size_t bytes = request.count * reducer.bytes(Width::partial);
    TUTTI_ASSIGN(device::DeviceBuffer result, device::DeviceBuffer::allocate(context, bytes));
    return std::unique_ptr<DeviceFold>(
        new DeviceFold(kernels, request, kernel, std::move(result), bytes));
}

// If there are more inputs than one kernel takes, the next kernel continues from the sum so far.
Result<> DeviceFold::put(const void* const* inputs, device::StreamHandle stream) const {
    if (r_.count == 0) return {};
    const std::size_t blocks =
        std::min(most_blocks, (r_.count + threads_per_block - 1) / threads_per_block);
    fold::Args args;
    args.out = result_.data();
    args.count = r_.count;
    int32_t taken = 0;
    while (taken < r_.inputs) {
        args.first_partial = taken > 0;
        args.inputs = args.first_partial;
        if (args.first_partial) args.in[0] = result_.data();
        while (args.inputs < fold::most_inputs && taken < r_.inputs)
            args.in[args.inputs++] = inputs[taken++];
        void* parameters[] = {&args};
        TUTTI_TRY(kernels_.launch(kernel_, static_cast<unsigned>(blocks),
                                  static_cast<unsigned>(threads_per_block), stream, parameters));
    }
    return {};
}

}  // namespace tutti
