// CUDA as torch sees it, acted out over the stand-in for the driver (test/cuda/fake_cuda.h): a
// device guard with streams and events, a caching allocator, and the few kernels that the tests
// need. Memory of such a device cannot be touched by the host, its streams lag behind, and what is
// freed is overwritten at once, as a caching allocator's next customer would.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

namespace {

constexpr int most_devices = 4, streams_per_device = 8;

// Calls the stand-in's functions by their own names.
struct Driver {
    explicit Driver(const char* path) : library(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        TORCH_CHECK(library, "no stand-in for the driver: ", ::dlerror());
    }
    template <typename Result = int, typename... Given>
    Result call(const char* name, Given... given) const {
        auto* entry = reinterpret_cast<Result (*)(Given...)>(::dlsym(library, name));
        TORCH_CHECK(entry, "the stand-in has no ", name);
        return entry(given...);
    }
    template <typename... Given>
    void need(const char* name, Given... given) const {
        const int status = call(name, given...);
        TORCH_CHECK(status == 0, name, ": status ", status);
    }
    void* library;
};

const Driver& driver() {
    static const Driver* found = new Driver(std::getenv("TUTTI_TEST_DRIVER"));
    return *found;
}

struct Device {
    void* context = nullptr;
    void* streams[streams_per_device] = {};
};

struct Current {
    explicit Current(int device);
    ~Current() {
        void* popped = nullptr;
        (void)driver().call("cuCtxPopCurrent_v2", &popped);
    }
    Current(const Current&) = delete;
};

Device* devices() {
    static Device* made = [] {
        auto* all = new Device[most_devices];
        for (int i = 0; i < most_devices; ++i) {
            driver().need("cuDevicePrimaryCtxRetain", &all[i].context, i);
            driver().need("cuCtxPushCurrent_v2", all[i].context);
            for (void*& stream : all[i].streams) driver().need("cuStreamCreate", &stream, 1u);
            void* popped = nullptr;
            driver().need("cuCtxPopCurrent_v2", &popped);
        }
        return all;
    }();
    return made;
}

Current::Current(int device) {
    driver().need("cuCtxPushCurrent_v2", devices()[device].context);
}

thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_streams[most_devices] = {};

void* handle(const c10::Stream& stream) {
    return devices()[stream.device_index()].streams[stream.id()];
}

c10::Stream stream_on(c10::DeviceIndex device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, device}, id);
}

c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::kCUDA; }
    c10::Device exchangeDevice(c10::Device device) const override {
        return {c10::kCUDA, std::exchange(current_device, index_of(device))};
    }
    c10::Device getDevice() const override { return {c10::kCUDA, current_device}; }
    void setDevice(c10::Device device) const override { current_device = index_of(device); }
    void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
    c10::Stream getStream(c10::Device device) const noexcept override {
        return stream_on(index_of(device), current_streams[index_of(device)]);
    }
    c10::Stream getDefaultStream(c10::Device device) const override {
        return stream_on(index_of(device), 0);
    }
    // The first ones are the test's own.
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
        static std::atomic<int> next{0};
        return stream_on(index_of(device), 3 + next++ % (streams_per_device - 3));
    }
    c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
        return stream_on(stream.device_index(),
                         std::exchange(current_streams[stream.device_index()], stream.id()));
    }
    // An override where torch has it.
    void* getStreamNativeHandle(const c10::Stream stream) const { return handle(stream); }
    c10::DeviceIndex deviceCount() const noexcept override { return most_devices; }

    void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
                const c10::EventFlag) const override {
        const Current current(stream.device_index());
        if (!*event) driver().need("cuEventCreate", event, 2u);
        driver().need("cuEventRecord", *event, handle(stream));
    }
    void block(void* event, const c10::Stream& stream) const override {
        if (event) driver().need("cuStreamWaitEvent", handle(stream), event, 0u);
    }
    bool queryEvent(void* event) const override {
        return !event || driver().call("cuEventQuery", event) == 0;
    }
    void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
        if (event) (void)driver().call("cuEventDestroy_v2", event);
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        driver().need("cuStreamSynchronize", handle(stream));
    }
    void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

void enqueue(const c10::Stream& stream, std::function<void()> work) {
    using Work = std::function<void()>;
    driver().call<void>(
        "fake_cuda_enqueue", handle(stream),
        +[](void* given) {
            const std::unique_ptr<Work> held(static_cast<Work*>(given));
            (*held)();
        },
        static_cast<void*>(new Work(std::move(work))));
}

char* touch(const void* address, std::size_t bytes) {
    return static_cast<char*>(driver().call<void*>("fake_cuda_touch", address, bytes));
}

// Never gives anything back, as long as the process lives.
struct Allocator final : c10::Allocator {
    struct Block {
        std::size_t bytes;
        c10::Stream stream;
    };
    c10::DataPtr allocate(std::size_t bytes) override {
        const c10::Device device(c10::kCUDA, current_device);
        if (bytes == 0) return {nullptr, nullptr, &drop, device};
        void* data =
            driver().call<void*>("fake_cuda_alloc", static_cast<int>(device.index()), bytes);
        const std::lock_guard lock(mutex);
        blocks.insert_or_assign(data, Block{bytes, Guard().getStream(device)});
        return {data, data, &drop, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &drop; }
    void copy_data(void*, const void*, std::size_t) const override {
        TORCH_CHECK(false, "not acted out");
    }
    static void drop(void* data);
    std::mutex mutex;
    std::map<void*, Block> blocks;
};

Allocator& allocator() {
    static auto* made = new Allocator;
    return *made;
}

// The next customer writes on the stream that the memory was allocated on, and waits for no other.
void Allocator::drop(void* data) {
    if (!data) return;
    const std::lock_guard lock(allocator().mutex);
    const Block block = allocator().blocks.at(data);
    enqueue(block.stream, [=] { std::memset(touch(data, block.bytes), 0xEE, block.bytes); });
}

// ---- kernels

constexpr c10::DispatchKeySet cuda_keys(c10::DispatchKey::CUDA);

at::Tensor empty(c10::SymIntArrayRef size, std::optional<c10::ScalarType> type,
                 std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>,
                 std::optional<c10::MemoryFormat> format) {
    const c10::DeviceGuard on(device.value_or(Guard().getDevice()));
    return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator(), cuda_keys,
                                     type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                         std::optional<c10::Device> device, std::optional<bool>) {
    const c10::DeviceGuard on(device.value_or(Guard().getDevice()));
    return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size),
                                             C10_AS_INTARRAYREF_SLOW(stride), &allocator(),
                                             cuda_keys, type.value_or(at::kFloat));
}

// Memory and shape of a tensor, without a hold on either: a kernel keeps nothing alive.
struct Seen {
    explicit Seen(const at::Tensor& tensor)
        : data(const_cast<void*>(tensor.const_data_ptr())),
          sizes(tensor.sizes().vec()),
          strides(tensor.strides().vec()),
          type(tensor.scalar_type()),
          bytes(tensor.numel() == 0 ? 0 : extent(tensor)) {}
    static std::size_t extent(const at::Tensor& tensor) {
        int64_t last = 0;
        for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
        return static_cast<std::size_t>(last + 1) * tensor.element_size();
    }
    // Within a stream's work.
    at::Tensor touched() const {
        return at::from_blob(touch(data, bytes), sizes, strides, at::TensorOptions(type));
    }
    void* data;
    std::vector<int64_t> sizes, strides;
    c10::ScalarType type;
    std::size_t bytes;
};

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
    const c10::Device device = to.is_cuda() ? to.device() : from.device();
    const c10::Stream stream = Guard().getStream(device);
    if (to.numel() > 0)
        enqueue(stream, [target = Seen(to), source = Seen(from)] {
            target.touched().copy_(source.touched());
        });
    if ((to.is_cpu() || from.is_cpu()) && !non_blocking) Guard().synchronizeStream(stream);
    return to;
}

// Replaces this torch's own CUDA kernels, but for view and as_strided, which touch no device.
void register_kernels() {
    static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA,
                                              __FILE__, __LINE__);
    library->impl("empty.memory_format", TORCH_FN(empty));
    library->impl("empty_strided", TORCH_FN(empty_strided));
    library->impl("copy_", TORCH_FN(copy));
    const auto missing = [](const char* name) {
        const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
        return found && !found->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
    };
    if (missing("aten::view")) library->impl("view", TORCH_FN(at::native::view));
    if (missing("aten::as_strided"))
        library->impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
}

// ---- what tests do

std::atomic<bool> gate_is_open{true};

void act() {
    (void)devices();
    static const auto* guard = new Guard;
    c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)].store(guard);
    register_kernels();
}

// As a torch that has no CUDA.
void forget() {
    c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)].store(nullptr);
}

at::Tensor put(const at::Tensor& values, int device) {
    at::Tensor made = at::empty(
        values.sizes(),
        values.options().device(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))));
    return made.copy_(values);
}

// As dense as before: a view stays one.
at::Tensor get(const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
}

void add_one(const at::Tensor& tensor) {
    enqueue(Guard().getStream(tensor.device()), [seen = Seen(tensor)] { seen.touched().add_(1); });
}

void gate(int device) {
    gate_is_open = false;
    enqueue(Guard().getStream({c10::kCUDA, static_cast<c10::DeviceIndex>(device)}), [] {
        while (!gate_is_open) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
}

int use_stream(int device, int stream) {
    const auto before =
        Guard().exchangeStream(stream_on(static_cast<c10::DeviceIndex>(device), stream));
    return static_cast<int>(before.id());
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    namespace py = pybind11;
    using released = py::call_guard<py::gil_scoped_release>;
    module.def("act", &act);
    module.def("forget", &forget);
    module.def("put", &put, released());
    module.def("get", &get, released());
    module.def("add_one", &add_one, released());
    module.def("gate", &gate, released());
    module.def("open_gate", [] { gate_is_open = true; });
    module.def("use_stream", &use_stream);
    module.def("handle", [](int device, c10::StreamId id) {
        return reinterpret_cast<std::uintptr_t>(
            handle(stream_on(static_cast<c10::DeviceIndex>(device), id)));
    });
    module.def("violations",
               [] { return std::string(driver().call<const char*>("fake_cuda_violations")); });
}
