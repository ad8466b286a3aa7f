#include "device.h"

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>

namespace tutti_torch {
namespace {

const c10::impl::DeviceGuardImplInterface& guard_of(c10::Device device) {
    return *c10::impl::getDeviceGuardImpl(device.type());
}

// Newer versions of torch have this in C++, all versions have it in python.
template <typename Stream>
void* handle_of(const Stream& stream) {
    if constexpr (requires { stream.native_handle(); }) {
        return stream.native_handle();
    } else {
        namespace py = pybind11;
        const py::gil_scoped_acquire held;
        const py::object made = py::module_::import("torch").attr("cuda").attr("Stream")(
            py::arg("stream_id") = stream.id(),
            py::arg("device_index") = static_cast<int64_t>(stream.device_index()),
            py::arg("device_type") = static_cast<int64_t>(stream.device_type()));
        return reinterpret_cast<void*>(made.attr("cuda_stream").template cast<std::uintptr_t>());
    }
}

template <typename Stream>
bool captured(const Stream& stream) {
    if constexpr (requires { stream.is_capturing(); })
        return stream.is_capturing();
    else
        return false;
}

}  // namespace

c10::Device device_of(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results,
                      const char* operation) {
    const at::Tensor* first = nullptr;
    for (const auto* tensors : {&inputs, &results}) {
        for (const at::Tensor& tensor : *tensors) {
            if (!first) first = &tensor;
            TORCH_CHECK_VALUE(tensor.device() == first->device(), "tutti ", operation,
                              ": a tensor is on ", first->device(), ", another one on ",
                              tensor.device(), ". What to do: pass tensors of one device");
        }
    }
    return first ? first->device() : c10::Device(c10::kCPU);
}

c10::Stream current_stream(c10::Device device) {
    return guard_of(device).getStream(device);
}

void check_not_captured(const c10::Stream& stream, const char* operation) {
    TORCH_CHECK_VALUE(!captured(stream), "tutti ", operation, ": the current stream of ",
                      stream.device(),
                      " is captured into a graph, which cannot contain collectives, as the host "
                      "takes part in them. What to do: make the call outside of the capture");
}

c10::Stream pool_stream(c10::Device device) {
    return guard_of(device).getStreamFromGlobalPool(device);
}

void put_after(const c10::Stream& later, const c10::Stream& earlier) {
    c10::Event mark(earlier.device_type());
    mark.record(earlier);
    mark.block(later);
}

const DeviceStreams::Pair& DeviceStreams::of(c10::Device device) {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(device.index());
    if (found != made_.end()) return found->second;
    // Other ranks wait for collectives, so these should run before compute kernels.
    constexpr bool high_priority = true;
    const c10::Stream stream = guard_of(device).getStreamFromGlobalPool(device, high_priority);
    return made_.emplace(device.index(), Pair{{stream, handle_of(stream)}, pool_stream(device)})
        .first->second;
}

DeviceStreams::Own DeviceStreams::collectives(c10::Device device) {
    return of(device).collectives;
}

c10::Stream DeviceStreams::messages(c10::Device device) {
    return of(device).messages;
}

}  // namespace tutti_torch
