// Owners of driver objects (streams, events, memory), and their context.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "cuda/driver.h"

namespace tutti::device {

/// 90 for compute capability 9.0; 0 if the driver does not say.
int capability_of(const Driver& driver, Ordinal device);

/// The name of a default stream that is each thread's own, CU_STREAM_PER_THREAD.
inline StreamHandle per_thread_stream() {
    return reinterpret_cast<StreamHandle>(std::uintptr_t{2});
}

/// The stream's device. For default streams, or if the driver cannot tell: the calling thread's
/// current device, or 0.
Ordinal device_of(const Driver& driver, StreamHandle stream);

/// While it lives, this thread may make driver calls that are unsafe during a graph capture of
/// another thread. Otherwise the driver would refuse them and end that capture. tutti never touches
/// the captured streams.
class BesideCaptures {
public:
    explicit BesideCaptures(const Driver& driver) : driver_(driver) {
        exchanged_ = driver_.exchange_capture_mode(&mode_) == success;
    }
    ~BesideCaptures() {
        if (exchanged_) driver_.exchange_capture_mode(&mode_);
    }
    BesideCaptures(const BesideCaptures&) = delete;

private:
    const Driver& driver_;
    int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; then the mode before
    bool exchanged_ = false;
};

/// One device. All copies, and all objects made in it, hold its primary context.
class Context {
public:
    static Result<Context> retain(const Driver& driver, Ordinal device);

    const Driver& driver() const { return held_->driver; }
    Ordinal device() const { return held_->device; }
    ContextHandle handle() const { return held_->handle; }

    /// Makes the context current on this thread while it lives, and allows captures beside it.
    class Scope {
    public:
        explicit Scope(const Context& context)
            : driver_(context.driver()), beside_(context.driver()) {
            pushed_ = driver_.context_push(context.handle()) == success;
        }
        ~Scope() {
            ContextHandle popped = nullptr;
            if (pushed_) driver_.context_pop(&popped);
        }
        Scope(const Scope&) = delete;

    private:
        const Driver& driver_;
        const BesideCaptures beside_;
        bool pushed_ = false;
    };

    /// invalid if the stream belongs to another device. nullptr, the legacy default stream, belongs
    /// to every device.
    Result<> owns(StreamHandle stream) const;
    /// unsupported while a graph is captured on the stream, or while work on it would end a
    /// capture.
    Result<> runs(StreamHandle stream) const;

private:
    struct Held {
        const Driver& driver;
        Ordinal device;
        ContextHandle handle;
        ~Held() { driver.primary_release(device); }
    };
    explicit Context(std::shared_ptr<const Held> held) : held_(std::move(held)) {}
    std::shared_ptr<const Held> held_;
};

/// A stream that does not wait for the legacy default stream.
class DeviceStream {
public:
    static Result<DeviceStream> create(const Context& context);
    DeviceStream(DeviceStream&& other) noexcept
        : context_(other.context_), handle_(std::exchange(other.handle_, nullptr)) {}
    DeviceStream& operator=(DeviceStream&&) = delete;
    ~DeviceStream();
    StreamHandle handle() const { return handle_; }

private:
    DeviceStream(const Context& context, StreamHandle handle)
        : context_(context), handle_(handle) {}
    Context context_;
    StreamHandle handle_;
};

class DeviceEvent {
public:
    static Result<DeviceEvent> create(const Context& context);
    DeviceEvent(DeviceEvent&& other) noexcept
        : context_(other.context_), handle_(std::exchange(other.handle_, nullptr)) {}
    DeviceEvent& operator=(DeviceEvent&&) = delete;
    ~DeviceEvent();

    /// Marks the end of the work that is now on the stream.
    Result<> record(StreamHandle stream) const;
    /// Makes later work on that stream wait for the mark.
    Result<> hold(StreamHandle stream) const;
    /// Whether the stream has passed the mark. Never waits.
    Result<bool> passed() const;

private:
    DeviceEvent(const Context& context, EventHandle handle) : context_(context), handle_(handle) {}
    Context context_;
    EventHandle handle_;
};

/// Pinned host memory, for copies by the device. Allocated and freed while no collective runs: both
/// wait for the device, and so for a collective's kernel.
class PinnedBuffer {
public:
    static Result<PinnedBuffer> allocate(const Context& context, std::size_t bytes);
    PinnedBuffer(PinnedBuffer&& other) noexcept
        : context_(other.context_), memory_(std::exchange(other.memory_, {})) {}
    PinnedBuffer& operator=(PinnedBuffer&&) = delete;
    ~PinnedBuffer();
    std::byte* data() const { return memory_.data(); }
    std::size_t size() const { return memory_.size(); }

private:
    PinnedBuffer(const Context& context, std::span<std::byte> memory)
        : context_(context), memory_(memory) {}
    Context context_;
    std::span<std::byte> memory_;
};

/// Device memory for data between kernels. Allocated and freed while no collective runs, as pinned
/// memory.
class DeviceBuffer {
public:
    static Result<DeviceBuffer> allocate(const Context& context, std::size_t bytes);
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : context_(other.context_), address_(std::exchange(other.address_, 0)) {}
    DeviceBuffer& operator=(DeviceBuffer&&) = delete;
    ~DeviceBuffer();
    /// The host must not access it.
    std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

private:
    DeviceBuffer(const Context& context, Address address) : context_(context), address_(address) {}
    Context context_;
    Address address_;
};

}  // namespace tutti::device
