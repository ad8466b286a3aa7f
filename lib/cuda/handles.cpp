#include "cuda/handles.h"

namespace tutti::device {
namespace {

constexpr unsigned non_blocking = 1;     // CU_STREAM_NON_BLOCKING
constexpr unsigned disable_timing = 2;   // CU_EVENT_DISABLE_TIMING
constexpr unsigned portable_memory = 1;  // CU_MEMHOSTALLOC_PORTABLE: pinned for every context

}  // namespace

Result<Context> Context::retain(const Driver& driver, Ordinal device) {
    ContextHandle handle = nullptr;
    TUTTI_TRY(
        check(driver, driver.primary_retain(&handle, device), "opening the GPU's primary context"));
    return Context(std::shared_ptr<const Held>(new Held{driver, device, handle}));
}

int capability_of(const Driver& driver, Ordinal device) {
    constexpr int major = 75, minor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
    int whole = 0, part = 0;
    if (driver.device_attribute(&whole, major, device) != success ||
        driver.device_attribute(&part, minor, device) != success)
        return 0;
    return whole * 10 + part;
}

Ordinal device_of(const Driver& driver, StreamHandle stream) {
    ContextHandle context = nullptr;
    const bool known = stream && driver.stream_context(stream, &context) == success && context;
    const bool pushed = known && driver.context_push(context) == success;
    Ordinal device = 0;
    if (driver.context_device(&device) != success) device = 0;
    if (pushed) driver.context_pop(&context);
    return device;
}

Result<> Context::owns(StreamHandle stream) const {
    if (!stream) return {};
    if (stream == per_thread_stream())
        return fail(Code::invalid,
                    "the device stream is cudaStreamPerThread, which is another stream on each of "
                    "tutti's threads")
            .advice("pass a stream of cudaStreamCreate, or NULL for the legacy default stream");
    const Scope current(*this);
    ContextHandle of_stream = nullptr;
    TUTTI_TRY(check(driver(), driver().stream_context(stream, &of_stream),
                    "looking up the context of the device stream"));
    if (of_stream == handle()) return {};
    Ordinal theirs = device();
    ContextHandle popped = nullptr;
    TUTTI_TRY(check(driver(), driver().context_push(of_stream),
                    "looking up the device of the device stream"));
    driver().context_device(&theirs);
    driver().context_pop(&popped);
    if (theirs == device()) return {};
    return fail(Code::invalid,
                "the device stream belongs to device {}, but the communicator's device is {}",
                theirs, device())
        .advice("pass a stream of device {}", device());
}

Result<> Context::runs(StreamHandle stream) const {
    const Scope current(*this);
    int capturing = 0;
    const Status status = driver().stream_is_capturing(stream, &capturing);
    if (status == capture_implicit)
        return fail(Code::unsupported,
                    "another stream of device {} is being captured into a CUDA graph, and the "
                    "legacy default stream would wait for it",
                    device())
            .advice("give tutti a stream of its own (tutti_comm_set_device_stream)");
    // If the query fails, the launch will fail too, and reports the error to all ranks.
    if (status != success || !capturing) return {};
    return fail(Code::unsupported,
                "the device stream is being captured into a CUDA graph, which cannot hold the part "
                "of the call that runs on the host")
        .advice("call tutti before or after the capture, or between two graphs");
}

Result<DeviceStream> DeviceStream::create(const Context& context) {
    const Context::Scope current(context);
    StreamHandle handle = nullptr;
    TUTTI_TRY(check(context.driver(), context.driver().stream_create(&handle, non_blocking),
                    "creating a CUDA stream"));
    return DeviceStream(context, handle);
}

DeviceStream::~DeviceStream() {
    if (!handle_) return;
    const Context::Scope current(context_);
    context_.driver().stream_destroy(handle_);
}

Result<DeviceEvent> DeviceEvent::create(const Context& context) {
    const Context::Scope current(context);
    EventHandle handle = nullptr;
    TUTTI_TRY(check(context.driver(), context.driver().event_create(&handle, disable_timing),
                    "creating a CUDA event"));
    return DeviceEvent(context, handle);
}

DeviceEvent::~DeviceEvent() {
    if (!handle_) return;
    const Context::Scope current(context_);
    context_.driver().event_destroy(handle_);
}

Result<> DeviceEvent::record(StreamHandle stream) const {
    return check(context_.driver(), context_.driver().event_record(handle_, stream),
                 "recording a CUDA event");
}

Result<> DeviceEvent::hold(StreamHandle stream) const {
    return check(context_.driver(), context_.driver().stream_wait_event(stream, handle_, 0),
                 "making a CUDA stream wait for an event");
}

Result<bool> DeviceEvent::passed() const {
    const BesideCaptures beside(context_.driver());
    const Status status = context_.driver().event_query(handle_);
    // Not an error: if the driver does fail the capture, a later call reports it.
    if (status == not_ready || status == capture_unsupported) return false;
    TUTTI_TRY(check(context_.driver(), status, "waiting for the GPU"));
    return true;
}

Result<PinnedBuffer> PinnedBuffer::allocate(const Context& context, std::size_t bytes) {
    if (bytes == 0) return PinnedBuffer(context, {});
    const Context::Scope current(context);
    void* data = nullptr;
    TUTTI_TRY(check(context.driver(), context.driver().host_alloc(&data, bytes, portable_memory),
                    "allocating pinned memory"));
    return PinnedBuffer(context, {static_cast<std::byte*>(data), bytes});
}

PinnedBuffer::~PinnedBuffer() {
    if (memory_.empty()) return;
    const Context::Scope current(context_);
    context_.driver().host_free(memory_.data());
}

Result<DeviceBuffer> DeviceBuffer::allocate(const Context& context, std::size_t bytes) {
    if (bytes == 0) return DeviceBuffer(context, 0);
    const Context::Scope current(context);
    Address address = 0;
    TUTTI_TRY(check(context.driver(), context.driver().device_alloc(&address, bytes),
                    "allocating device memory"));
    return DeviceBuffer(context, address);
}

DeviceBuffer::~DeviceBuffer() {
    if (address_ == 0) return;
    const Context::Scope current(context_);
    context_.driver().device_free(address_);
}

}  // namespace tutti::device
