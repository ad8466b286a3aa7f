// An operation of which a part is put on a device's stream before it starts.
#pragma once

#include <functional>

#include "transport/operation.h"

namespace tutti {

class DeviceOperation : public Operation {
public:
    using GiveUp = std::function<bool()>;
    /// Puts the device's own part on its stream (a library's handle), before start() and in the
    /// order of the calls, as every rank has it. It may have to wait, and fails when give_up() says
    /// so; then nothing of it runs.
    virtual Result<> launch(const void* in, void* out, void* device_stream,
                            const GiveUp& give_up) = 0;
    // While a thread gathers the launches of several ranks, what they ask the device's library for
    // is taken together, and each is finished afterwards. An operation that asks several times in a
    // row is launched in as many parts as all ranks of its group have, instead of by launch().
    virtual uint32_t launch_parts() const { return 1; }
    virtual Result<> launch_part(uint32_t part, const void* in, void* out, void* device_stream,
                                 const GiveUp& give_up) {
        static_cast<void>(part);
        return launch(in, out, device_stream, give_up);
    }
    /// When all that is gathered has launched the part, and before any of it is finished.
    virtual Result<> mark_part(uint32_t part, void* device_stream) {
        static_cast<void>(part), static_cast<void>(device_stream);
        return {};
    }
    /// Waits until the library has taken the part, and goes on with what comes behind it.
    virtual Result<> finish_part(uint32_t part, void* device_stream, const GiveUp& give_up) {
        static_cast<void>(part), static_cast<void>(device_stream), static_cast<void>(give_up);
        return {};
    }
    /// False while ending it would take an earlier run, which may still succeed, with it.
    virtual bool may_cancel() { return true; }
};

}  // namespace tutti
