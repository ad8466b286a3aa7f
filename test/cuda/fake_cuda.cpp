#include "cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/worker.h"
#include "reduce/fold_host.h"

namespace {

constexpr int ok = 0, invalid_value = 1, invalid_device = 101, invalid_context = 201,
              invalid_handle = 400, not_found = 500, not_ready = 600;
constexpr int most_devices = 16;

int device_count() {
    const char* text = std::getenv("FAKE_CUDA_DEVICES");
    return text ? std::atoi(text) : 4;
}
int delay_us() {
    const char* text = std::getenv("FAKE_CUDA_DELAY_US");
    return text ? std::atoi(text) : 200;
}

struct FakeContext;
struct FakeStream {
    FakeContext* context;
    std::shared_ptr<Worker> worker = std::make_shared<Worker>(delay_us());
    std::atomic<bool> captured{false};
    /// A call of the driver's that puts work on the stream.
    void submit(std::function<void()> work);
};
struct FakeContext {
    int device = 0;
    int retained = 0;
    std::unique_ptr<FakeStream> legacy;
    std::atomic<int> captured{0};  // of its streams
    std::set<FakeStream*> streams;
    std::shared_mutex driver;  // exclusive: nobody puts work on its streams meanwhile
};
void FakeStream::submit(std::function<void()> work) {
    if (captured || (context->captured > 0 && this == context->legacy.get()))
        fake_cuda_violation("work on a stream that is captured");
    const std::shared_lock lock(context->driver);
    worker->add(std::move(work));
}
struct FakeEvent {
    FakeContext* context;
    std::shared_ptr<std::atomic<uint64_t>> passed = std::make_shared<std::atomic<uint64_t>>(0);
    std::atomic<uint64_t> recorded{0};
};
struct Memory {
    std::size_t bytes = 0;
    int device = -1;          // -1: pinned host memory
    char* touched = nullptr;  // where workers reach it
};

struct State {
    std::mutex mutex;
    FakeContext contexts[most_devices];
    std::map<std::uintptr_t, Memory> memory;
    std::atomic<int> live{0}, collectives[most_devices]{}, broken[most_devices]{};
    std::atomic<int> copies_from[most_devices]{}, copies_to[most_devices]{},
        overlaps[most_devices]{};
    std::atomic<int> kernels{0};
    std::atomic<bool> captures{false};
    std::size_t pinned = 0, most_pinned = 0;
};
// Never destroyed: streams' threads may outlive main.
State& state() {
    static auto* made = new State;
    return *made;
}

thread_local std::vector<FakeContext*> current;
thread_local int capture_mode = 0;  // "global", the driver's own default
constexpr int capture_relaxed = 2, capture_unsupported = 900, capture_implicit = 906;

FakeContext* context() {
    return current.empty() ? nullptr : current.back();
}

FakeStream* resolve(void* stream) {
    if (stream) return static_cast<FakeStream*>(stream);
    FakeContext* c = context();
    if (!c) return nullptr;
    const std::lock_guard lock(state().mutex);
    if (!c->legacy) c->legacy.reset(new FakeStream{c});
    return c->legacy.get();
}

int broken(int device) {
    return state().broken[device].load();
}
int broken_here() {
    return context() ? broken(context()->device) : ok;
}

int may_disturb_captures(const char* what) {
    if (!state().captures || capture_mode == capture_relaxed) return ok;
    fake_cuda_violation((std::string(what) + " ends a capture on another thread").c_str());
    return capture_unsupported;
}

const std::pair<const std::uintptr_t, Memory>* find(std::uintptr_t at) {
    auto& memory = state().memory;
    auto next = memory.upper_bound(at);
    if (next == memory.begin()) return nullptr;
    --next;
    return at < next->first + next->second.bytes ? &*next : nullptr;
}

// With the lock held.
void* touch(std::uintptr_t at, std::size_t bytes) {
    const auto* found = find(at);
    if (!found) return reinterpret_cast<void*>(at);
    if (at + bytes > found->first + found->second.bytes) return nullptr;
    return found->second.touched + (at - found->first);
}

bool is_on_device(std::uintptr_t at) {
    const std::lock_guard lock(state().mutex);
    const auto* found = find(at);
    return found && found->second.device >= 0;
}

bool is_known(std::uintptr_t at, std::size_t bytes) {
    const std::lock_guard lock(state().mutex);
    return find(at) && touch(at, bytes);
}

/// Locked, as a program may free what a broken device was waiting for. False: nothing was done.
template <class Use>
bool with_word(int device, std::uintptr_t at, Use use) {
    std::unique_lock lock(state().mutex);
    if (broken(device) != ok) return false;
    if (find(at)) {
        use(*static_cast<uint32_t*>(touch(at, sizeof(uint32_t))));
        return true;
    }
    lock.unlock();
    fake_cuda_violation("a stream waits for a word or writes one that is not there any more");
    return false;
}

/// A copy under way, which takes as long as other work does.
class Copying {
public:
    Copying(int device, bool leaves, bool comes)
        : from_(state().copies_from[device]),
          to_(state().copies_to[device]),
          leaves_(leaves && !comes),
          comes_(comes && !leaves) {
        from_ += leaves_;
        to_ += comes_;
        if ((leaves_ && to_ > 0) || (comes_ && from_ > 0)) ++state().overlaps[device];
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us()));
    }
    ~Copying() {
        from_ -= leaves_;
        to_ -= comes_;
    }
    Copying(const Copying&) = delete;

private:
    std::atomic<int>&from_, &to_;
    const bool leaves_, comes_;
};

void must_be_idle(const char* what) {
    fake_cuda_may_wait(what);
    if (context() && state().collectives[context()->device] > 0)
        fake_cuda_violation((std::string(what) + " while a collective is under way").c_str());
}

/// As memory is made or freed.
void may_wait_for_device() {
    if (fake_cuda_told(fake_waiting_alloc) < 0) return;
    std::vector<std::shared_ptr<Worker>> all;
    {
        const std::lock_guard lock(state().mutex);
        for (FakeStream* s : context()->streams) all.push_back(s->worker);
        if (context()->legacy) all.push_back(context()->legacy->worker);
    }
    for (const auto& worker : all)
        if (!worker->drain_for(std::chrono::seconds(10)))
            fake_cuda_violation("memory is made while a stream waits for what comes later");
}

}  // namespace

extern "C" {

std::atomic<std::size_t> fake_cuda_copied{0};
int cuInit(unsigned) {
    return device_count() > 0 ? ok : 100;
}
int cuDriverGetVersion(int* version) {
    return *version = 13000, ok;
}
int cuDeviceGetCount(int* count) {
    return *count = device_count(), ok;
}
int cuDeviceGetName(char* name, int length, int device) {
    std::snprintf(name, static_cast<std::size_t>(length), "stand-in %d", device);
    return ok;
}
int cuDeviceGetPCIBusId(char* name, int length, int device) {
    if (device < 0 || device >= device_count()) return invalid_device;
    std::snprintf(name, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 16);
    return ok;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {  // compute capability: 9.0, 8.0
    const char* old = std::getenv("FAKE_CUDA_OLD_DEVICE");
    return *value = attribute == 76 ? 0 : old && std::atoi(old) == device ? 8 : 9, ok;
}
// Pairs of neighbours with NVLink, the middle over PCIe, the rest through the host.
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
    if (device == peer || std::max(device, peer) >= device_count()) return invalid_device;
    const int apart = device > peer ? device - peer : peer - device;
    return *can = apart == 1 || device / 2 == peer / 2, ok;
}
int cuDeviceGetP2PAttribute(int* value, int attribute, int device, int peer) {
    if (device == peer || std::max(device, peer) >= device_count()) return invalid_device;
    return *value = attribute == 3 && device / 2 == peer / 2, ok;
}
int cuDevicePrimaryCtxRetain(void** out, int device) {
    if (device < 0 || device >= device_count()) return invalid_device;
    if (broken(device) != ok) return broken(device);
    const std::lock_guard lock(state().mutex);
    FakeContext& c = state().contexts[device];
    // Others read it without the lock: once written it stays.
    if (c.device != device) c.device = device;
    ++c.retained;
    ++state().live;
    *out = &c;
    return ok;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    const std::lock_guard lock(state().mutex);
    if (--state().contexts[device].retained < 0)
        fake_cuda_violation("a context released more often than retained");
    --state().live;
    return ok;
}
int cuCtxPushCurrent_v2(void* c) {
    if (!c) return invalid_context;
    current.push_back(static_cast<FakeContext*>(c));
    return ok;
}
int cuCtxPopCurrent_v2(void** c) {
    if (current.empty()) return invalid_context;
    *c = current.back();
    current.pop_back();
    return ok;
}
int cuCtxGetDevice(int* device) {
    if (!context()) return invalid_context;
    return *device = context()->device, ok;
}
int cuPointerGetAttributes(unsigned count, int* attributes, void** values, unsigned long long at) {
    fake_cuda_count_question();
    if (broken_here() != ok) return broken_here();
    const std::lock_guard lock(state().mutex);
    const auto* found = find(at);
    for (unsigned i = 0; i < count; ++i) {
        auto* value = static_cast<int*>(values[i]);
        if (attributes[i] == 2) *value = !found ? 0 : found->second.device < 0 ? 1 : 2;
        if (attributes[i] == 8) *value = 0;
        if (attributes[i] == 9) *value = found ? std::max(0, found->second.device) : 0;
    }
    return ok;
}
int cuStreamCreate(void** stream, unsigned) {
    if (!context()) return invalid_context;
    if (broken_here() != ok) return broken_here();
    ++state().live;
    auto* made = new FakeStream{context()};
    const std::lock_guard lock(state().mutex);
    context()->streams.insert(made);
    *stream = made;
    return ok;
}
int cuStreamDestroy_v2(void* stream) {
    {
        const std::lock_guard lock(state().mutex);
        auto* s = static_cast<FakeStream*>(stream);
        s->context->streams.erase(s);
    }
    delete static_cast<FakeStream*>(stream);
    --state().live;
    return ok;
}
int cuStreamGetCtx(void* stream, void** c) {
    return *c = resolve(stream)->context, ok;
}
int cuEventCreate(void** event, unsigned) {
    if (!context()) return invalid_context;
    if (broken_here() != ok) return broken_here();
    ++state().live;
    *event = new FakeEvent{context()};
    return ok;
}
int cuEventDestroy_v2(void* event) {
    delete static_cast<FakeEvent*>(event);
    --state().live;
    return ok;
}
int cuEventRecord(void* event, void* stream) {
    auto* e = static_cast<FakeEvent*>(event);
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (s->context != e->context) return invalid_handle;
    if (broken(e->context->device) != ok) return broken(e->context->device);
    const uint64_t mark = ++e->recorded;
    s->submit([passed = e->passed, mark] { passed->store(mark); });
    return ok;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
    return std::swap(*mode, capture_mode), ok;
}
int cuStreamIsCapturing(void* stream, int* captured) {
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (broken(s->context->device) != ok) return broken(s->context->device);
    if (!stream && s->context->captured > 0) return capture_implicit;
    return *captured = s->captured, ok;
}
int cuEventQuery(void* event) {
    auto* e = static_cast<FakeEvent*>(event);
    if (const int status = may_disturb_captures("a query"); status != ok) return status;
    if (broken(e->context->device) != ok) return broken(e->context->device);
    return e->passed->load() >= e->recorded ? ok : not_ready;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
    auto* e = static_cast<FakeEvent*>(event);
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (fake_cuda_told(fake_drop_events) == s->context->device) return ok;
    if (broken(s->context->device) != ok) return broken(s->context->device);
    s->submit([passed = e->passed, mark = e->recorded.load()] {
        while (passed->load() < mark) std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
    return ok;
}
int cuStreamWaitValue32_v2(void* stream, unsigned long long address, uint32_t value, unsigned) {
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (!is_known(address, sizeof value)) return invalid_value;
    if (fake_cuda_told(fake_drop_words) == s->context->device) return ok;
    s->submit([=, device = s->context->device] {
        bool there = false;
        const auto look = [&](uint32_t& word) {
            const uint32_t now = std::atomic_ref(word).load(std::memory_order_acquire);
            there = static_cast<int32_t>(now - value) >= 0;
        };
        while (with_word(device, address, look) && !there)
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
    return ok;
}
int cuStreamWriteValue32_v2(void* stream, unsigned long long address, uint32_t value, unsigned) {
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (!is_known(address, sizeof value)) return invalid_value;
    if (broken(s->context->device) != ok) return broken(s->context->device);
    s->submit([=, device = s->context->device] {
        with_word(device, address, [&](uint32_t& word) {
            std::atomic_ref(word).store(value, std::memory_order_release);
        });
    });
    return ok;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
    if (!context()) return invalid_context;
    if (broken_here() != ok) return broken_here();
    must_be_idle("pinned memory allocated");
    may_wait_for_device();
    if (const int status = may_disturb_captures("pinned memory"); status != ok) return status;
    *memory = std::calloc(1, bytes);
    const std::lock_guard lock(state().mutex);
    state().memory[reinterpret_cast<std::uintptr_t>(*memory)] = {bytes, -1,
                                                                 static_cast<char*>(*memory)};
    state().pinned += bytes;
    state().most_pinned = std::max(state().most_pinned, state().pinned);
    ++state().live;
    return ok;
}
int cuMemFreeHost(void* memory) {
    must_be_idle("pinned memory freed");
    const std::lock_guard lock(state().mutex);
    const auto found = state().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == state().memory.end()) return invalid_value;
    state().pinned -= found->second.bytes;
    state().memory.erase(found);
    std::free(memory);
    --state().live;
    return ok;
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes, void* stream) {
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (broken(s->context->device) != ok) return broken(s->context->device);
    // Between two places in host memory it is not asynchronous at all.
    const bool waits = !is_on_device(from) && !is_on_device(to);
    fake_cuda_copied += is_on_device(from) == is_on_device(to) ? 0 : bytes;
    s->submit([=, device = s->context->device] {
        const Copying copying(device, is_on_device(from), is_on_device(to));
        // Locked, as a program may free what a broken device was copying.
        std::unique_lock lock(state().mutex);
        if (broken(device) != ok) return;
        void* target = touch(to, bytes);
        const void* source = touch(from, bytes);
        if (target && source) return void(std::memcpy(target, source, bytes));
        lock.unlock();
        fake_cuda_violation("a copy to or from memory that is not there any more");
    });
    if (waits && !s->worker->drain_for(std::chrono::seconds(10)))
        fake_cuda_violation("a copy in host memory waits for what comes after the call");
    return ok;
}
// A module is its image; its kernels are the host's loops of the same arithmetic.
int cuModuleLoadData(void** module, const void* image) {
    if (!context()) return invalid_context;
    if (broken_here() != ok) return broken_here();
    if (!image) return invalid_value;
    must_be_idle("a module loaded");
    if (const int status = may_disturb_captures("a module"); status != ok) return status;
    ++state().live;
    *module = const_cast<void*>(image);
    return ok;
}
int cuModuleUnload(void*) {
    --state().live;
    return ok;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
    int dtype = 0, op = 0;
    if (std::sscanf(name, "tutti_fold_%d_%d", &dtype, &op) != 2) return not_found;
    const tutti::fold::Loop loop = tutti::fold::find_loop(dtype, op);
    *function = reinterpret_cast<void*>(loop);
    return loop ? ok : not_found;
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void* stream, void** parameters, void**) {
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    if (broken(s->context->device) != ok) return broken(s->context->device);
    ++state().kernels;
    s->submit([loop = reinterpret_cast<tutti::fold::Loop>(function),
               args = *static_cast<const tutti::fold::Args*>(parameters[0])]() mutable {
        for (int i = 0; i < args.inputs; ++i) args.in[i] = fake_cuda_touch(args.in[i], 1);
        args.out = fake_cuda_touch(args.out, 1);
        loop(args);
    });
    return ok;
}
// For programs that use the driver themselves.
int cuStreamSynchronize(void* stream) {
    FakeStream* s = resolve(stream);
    if (!s) return invalid_context;
    s->worker->drain();
    return broken(s->context->device);
}
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
    if (!context()) return invalid_context;
    if (broken_here() != ok) return broken_here();
    must_be_idle("device memory allocated");
    if (const int status = may_disturb_captures("device memory"); status != ok) return status;
    *address = reinterpret_cast<std::uintptr_t>(fake_cuda_alloc(context()->device, bytes));
    ++state().live;
    return ok;
}
int cuMemFree_v2(unsigned long long address) {
    must_be_idle("device memory freed");
    fake_cuda_free(reinterpret_cast<void*>(address));
    --state().live;
    return ok;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes) {
    fake_cuda_poke(reinterpret_cast<void*>(to), from, bytes);
    return ok;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes) {
    fake_cuda_peek(to, reinterpret_cast<void*>(from), bytes);
    return ok;
}
int cuGetErrorName(int status, const char** name) {
    *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_STAND_IN";
    return ok;
}
int cuGetErrorString(int, const char** text) {
    return *text = "as the test wanted it", ok;
}

// ---- what only the tests and the other stand-in know ------------------------------------------

void fake_cuda_enqueue(void* stream, void (*work)(void*), void* argument) {
    resolve(stream)->worker->add([=] { work(argument); });
}
void* fake_cuda_stream(void* stream) {
    return resolve(stream);
}
void* fake_cuda_touch(const void* address, std::size_t bytes) {
    const std::lock_guard lock(state().mutex);
    return touch(reinterpret_cast<std::uintptr_t>(address), bytes);
}
int fake_cuda_current(void) {
    return context() ? context()->device : -1;
}
void fake_cuda_collective(int device, int change) {
    state().collectives[device] += change;
}

// One file mapped twice: at the device's address nobody may touch it.
void* fake_cuda_alloc(int device, std::size_t bytes) {
    const std::size_t whole = (bytes + 4095) / 4096 * 4096;
    const int fd = ::memfd_create("device memory", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(whole)) != 0) return nullptr;
    void* address = ::mmap(nullptr, whole, PROT_NONE, MAP_SHARED, fd, 0);
    void* touched = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    const std::lock_guard lock(state().mutex);
    state().memory[reinterpret_cast<std::uintptr_t>(address)] = {whole, device,
                                                                 static_cast<char*>(touched)};
    return address;
}
void fake_cuda_free(void* address) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().memory.find(reinterpret_cast<std::uintptr_t>(address));
    ::munmap(address, found->second.bytes);
    ::munmap(found->second.touched, found->second.bytes);
    state().memory.erase(found);
}
void fake_cuda_poke(void* address, const void* from, std::size_t bytes) {
    std::memcpy(fake_cuda_touch(address, bytes), from, bytes);
}
void fake_cuda_peek(void* to, const void* address, std::size_t bytes) {
    std::memcpy(to, fake_cuda_touch(address, bytes), bytes);
}
void fake_cuda_increment(void* stream, void* address, std::size_t count, int us) {
    resolve(stream)->worker->add([=] {
        std::this_thread::sleep_for(std::chrono::microseconds(us));
        auto* values = static_cast<float*>(fake_cuda_touch(address, count * sizeof(float)));
        for (std::size_t i = 0; i < count; ++i) values[i] += 1;
    });
}
void fake_cuda_synchronize(void* stream) {
    resolve(stream)->worker->drain();
}
void fake_cuda_free_meanwhile(void* stream, std::atomic<int>* begun) {
    FakeStream* s = resolve(stream);
    const std::lock_guard lock(s->context->driver);
    ++*begun;
    if (!s->worker->drain_for(std::chrono::seconds(10)))
        fake_cuda_violation("a stream waits for what is put on it later");
}

void fake_cuda_break(int device, int status) {
    state().broken[device] = status;
}
void fake_cuda_capture_elsewhere(bool captures) {
    state().captures = captures;
}
void fake_cuda_capture(void* stream, bool captures) {
    FakeStream* s = resolve(stream);
    s->captured = captures;
    s->context->captured += captures ? 1 : -1;
}
int fake_cuda_overlaps(int device) {
    return state().overlaps[device];
}
std::size_t fake_cuda_most_pinned(void) {
    const std::lock_guard lock(state().mutex);
    return std::exchange(state().most_pinned, state().pinned);
}
int fake_cuda_kernels(void) {
    return state().kernels;
}
int fake_cuda_live(void) {
    return state().live;
}
}
