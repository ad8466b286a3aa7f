// Devices through torch's generic interfaces, so that the backend needs no CUDA header and also
// builds with a torch without CUDA.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace tutti_torch {

/// The one device of all tensors; the host if there are no tensors. ValueError for several devices.
c10::Device device_of(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results,
                      const char* operation);

/// The stream on which the calling thread computes on that device.
c10::Stream current_stream(c10::Device device);
/// ValueError while that stream is captured into a graph, which would not contain the host's part.
void check_not_captured(const c10::Stream& stream, const char* operation);
/// A stream of torch's pool, which other code may get too.
c10::Stream pool_stream(c10::Device device);
/// Makes later work on `later` wait for the work now on `earlier`. Never blocks the host.
void put_after(const c10::Stream& later, const c10::Stream& earlier);

/// The streams of a group, separate from compute streams, so that both run at the same time. Made
/// at the first use of a device. Any thread.
class DeviceStreams {
public:
    struct Own {
        c10::Stream stream;
        void* handle;  ///< the driver's handle
    };
    /// For collectives, which have one order.
    Own collectives(c10::Device device);
    /// For the copies of messages, which are outside that order and must not wait in it.
    c10::Stream messages(c10::Device device);

private:
    struct Pair {
        Own collectives;
        c10::Stream messages;
    };
    const Pair& of(c10::Device device);

    std::mutex mutex_;
    std::map<c10::DeviceIndex, Pair> made_;
};

}  // namespace tutti_torch
