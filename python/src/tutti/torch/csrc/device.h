// Devices, as torch's generic interfaces show them: built without a header of CUDA's, and with a
// torch that has none.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace tutti_torch {

/// The device that all of them are on; the host if there are none. ValueError if they are on
/// several.
c10::Device device_of(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results,
                      const char* operation);

/// The stream on which the calling thread computes on that device.
c10::Stream current_stream(c10::Device device);
/// ValueError while that stream is captured into a graph: what the host has to do would not be.
void check_not_captured(const c10::Stream& stream, const char* operation);
/// One of torch's own, which others may get too.
c10::Stream pool_stream(c10::Device device);
/// Later work on `later` waits for the work that `earlier` has by now. Never blocks the host.
void put_after(const c10::Stream& later, const c10::Stream& earlier);

/// The streams of a group: beside those that compute, so that both go on at the same time. Made
/// with the first use of a device. Any thread.
class DeviceStreams {
public:
    struct Own {
        c10::Stream stream;
        void* handle;  ///< what the driver calls it
    };
    /// For collectives, which are in one order.
    Own collectives(c10::Device device);
    /// For what messages bring: they are not in that order, and must not wait in it.
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
