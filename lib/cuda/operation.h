// An operation that puts a part of its work on a device's stream before it starts.
#pragma once

#include <functional>

#include "transport/operation.h"

namespace tutti {

class DeviceOperation : public Operation {
public:
    using GiveUp = std::function<bool()>;
    /// Puts the device's part on its stream (a library's handle), before start() and in the order
    /// of the calls, which is the same on every rank. May wait. If give_up() is true, it fails and
    /// no part of it runs.
    virtual Result<> launch(const void* in, void* out, void* device_stream,
                            const GiveUp& give_up) = 0;
    // While a thread gathers the launches of several ranks, the device library takes their calls
    // together, and each launch is finished afterwards. An operation with several library calls in
    // a row is then launched in parts, equally many on all ranks of its group, instead of by
    // launch().
    virtual uint32_t launch_parts() const { return 1; }
    virtual Result<> launch_part(uint32_t part, const void* in, void* out, void* device_stream,
                                 const GiveUp& give_up) {
        static_cast<void>(part);
        return launch(in, out, device_stream, give_up);
    }
    /// Called after all gathered operations have launched the part, before any is finished.
    virtual Result<> mark_part(uint32_t part, void* device_stream) {
        static_cast<void>(part), static_cast<void>(device_stream);
        return {};
    }
    /// Waits until the library has accepted the part, then puts the work behind it on the stream.
    virtual Result<> finish_part(uint32_t part, void* device_stream, const GiveUp& give_up) {
        static_cast<void>(part), static_cast<void>(device_stream), static_cast<void>(give_up);
        return {};
    }
    /// False while cancelling it would also end an earlier run that may still succeed.
    virtual bool may_cancel() { return true; }
};

}  // namespace tutti
