#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda/fake_cuda.h"
#include "cuda/handles.h"
#include "cuda/held_stream.h"
#include "cuda/links.h"
#include "cuda/memory.h"
#include "support/catch.h"
#include "support/sanitized.h"

using namespace tutti;
using namespace tutti::device;

namespace {

const Driver& fake_driver() {
    return **find_driver(std::getenv("TUTTI_FAKE_CUDA"));
}

template <typename Test>
void until(Test test) {
    for (int i = 0; i < 20'000 && !test(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(test());
}

}  // namespace

// The first of the file: a driver that was found stays.
TEST_CASE("driver: says where it looked, and host memory needs none") {
    REQUIRE(driver() == nullptr);
    int on_stack = 0;
    REQUIRE_FALSE(memory_of(&on_stack)->on_device());
    const auto absent = find_driver("/nowhere/libcuda.so.1");
    REQUIRE_FALSE(absent);
    REQUIRE(absent.error().code == Code::unsupported);
    REQUIRE(absent.error().message.find("/nowhere/libcuda.so.1") != std::string::npos);
    const auto own = find_driver("");
    REQUIRE_FALSE(own);
    REQUIRE(own.error().advice.find("TUTTI_CUDA_LIBRARY") != std::string::npos);
    REQUIRE(driver() == nullptr);
}

TEST_CASE("driver: refuses a library that lacks what it needs, and names it") {
    const auto other = find_driver("libm.so.6");
    REQUIRE_FALSE(other);
    REQUIRE(other.error().message.find("cu") != std::string::npos);
}

TEST_CASE("driver: is found once and stays") {
    const auto found = find_driver(std::getenv("TUTTI_FAKE_CUDA"));
    REQUIRE(found);
    REQUIRE((*found)->version == 13000);
    REQUIRE(*find_driver("/nowhere/libcuda.so.1") == *found);
    REQUIRE(driver() == *found);
}

TEST_CASE("memory_of: tells host, pinned and device memory apart") {
    const Driver& cuda = fake_driver();
    static int in_data = 0;
    int on_stack = 0;
    const std::vector<int> small(10), large(4 << 20);
    for (const void* host :
         {static_cast<const void*>(&in_data), static_cast<const void*>(&on_stack),
          static_cast<const void*>(small.data()), static_cast<const void*>(large.data()),
          static_cast<const void*>(nullptr)})
        REQUIRE(memory_of(host) == MemoryKind{});
    const auto context = Context::retain(cuda, 0);
    REQUIRE(context);
    const auto pinned = PinnedBuffer::allocate(*context, 100);
    REQUIRE(pinned);
    REQUIRE_FALSE(memory_of(pinned->data())->on_device());
    void* on_device = fake_cuda_alloc(2, 10'000);
    REQUIRE(memory_of(on_device) == MemoryKind{2});
    REQUIRE(memory_of(static_cast<char*>(on_device) + 9'999) == MemoryKind{2});
    REQUIRE(describe(*memory_of(on_device)) == "memory of device 2");
    fake_cuda_free(on_device);
}

TEST_CASE("memory_of: is right after memory was freed and its address given to another kind") {
    fake_driver();
    void* first = fake_cuda_alloc(1, 1 << 20);
    REQUIRE(memory_of(first) == MemoryKind{1});
    fake_cuda_free(first);
    REQUIRE_FALSE(memory_of(first)->on_device());
    // The system gives the address out again sooner or later, most likely now.
    for (int i = 0; i < 50; ++i) {
        void* again = fake_cuda_alloc(3, 1 << 20);
        REQUIRE(memory_of(again) == MemoryKind{3});
        fake_cuda_free(again);
        std::vector<char> host(1 << 20);
        REQUIRE_FALSE(memory_of(host.data())->on_device());
    }
}

TEST_CASE("memory_of: recognises the stack and the heap without the driver") {
    fake_driver();
    int on_stack = 0;
    const auto on_heap = std::make_unique<int>(0);
    const int asked_before = fake_cuda_asked();
    for (int i = 0; i < 1000; ++i)
        REQUIRE_FALSE(memory_of(i % 2 == 0 ? &on_stack : on_heap.get())->on_device());
    // A sanitizer keeps heap and locals in mappings of its own, for which the driver must be asked.
    if (!test::sanitized) REQUIRE(fake_cuda_asked() == asked_before);
}

TEST_CASE("event: orders streams, and is passed when what it marks is done") {
    const auto context = Context::retain(fake_driver(), 0);
    const auto a = DeviceStream::create(*context), b = DeviceStream::create(*context);
    const auto marked = DeviceEvent::create(*context), done = DeviceEvent::create(*context);
    constexpr std::size_t count = 1000;
    void* values = fake_cuda_alloc(0, count * sizeof(float));
    const auto to = PinnedBuffer::allocate(*context, count * sizeof(float));
    test::HeldStream held(a->handle());
    fake_cuda_increment(a->handle(), values, count, 20'000);
    REQUIRE(marked->record(a->handle()));
    REQUIRE_FALSE(*marked->passed());
    held.let_go();
    REQUIRE(marked->hold(b->handle()));
    REQUIRE(context->driver().copy_async(reinterpret_cast<Address>(to->data()),
                                         reinterpret_cast<Address>(values), count * sizeof(float),
                                         b->handle()) == success);
    REQUIRE(done->record(b->handle()));
    until([&] { return *done->passed(); });
    REQUIRE(reinterpret_cast<const float*>(to->data())[count - 1] == 1);
    fake_cuda_free(values);
}

TEST_CASE("event: is asked for, and memory made, while another thread captures a graph") {
    const auto context = Context::retain(fake_driver(), 0);
    const auto stream = DeviceStream::create(*context);
    const auto done = DeviceEvent::create(*context);
    fake_cuda_capture_elsewhere(true);
    REQUIRE(done->record(stream->handle()));
    until([&] { return done->passed().value_or(false); });
    REQUIRE(PinnedBuffer::allocate(*context, 100));
    REQUIRE(DeviceBuffer::allocate(*context, 100));
    fake_cuda_capture_elsewhere(false);
    int mode = 0;
    REQUIRE(context->driver().exchange_capture_mode(&mode) == success);
    REQUIRE(mode == 0);  // the thread's own again
    REQUIRE(std::string(fake_cuda_violations()) == "");
}

TEST_CASE("links: every pair of devices, from both sides") {
    const auto devices = linked_devices(fake_driver());
    REQUIRE(devices);
    REQUIRE(devices->size() == 4);
    using enum Link;
    const std::vector<std::vector<Link>> wanted{{self, nvlink, host, host},
                                                {nvlink, self, pcie, host},
                                                {host, pcie, self, nvlink},
                                                {host, host, nvlink, self}};
    for (std::size_t d = 0; d < 4; ++d) {
        REQUIRE((*devices)[d].links == wanted[d]);
        REQUIRE((*devices)[d].name == "stand-in " + std::to_string(d));
    }
    REQUIRE((*devices)[1].bus == "0000:11:00.0");
}

TEST_CASE("context: knows its own streams") {
    const auto first = Context::retain(fake_driver(), 0),
               second = Context::retain(fake_driver(), 1);
    const auto own = DeviceStream::create(*first);
    REQUIRE(first->owns(own->handle()));
    REQUIRE(first->owns(nullptr));
    const auto refused = second->owns(own->handle());
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().code == Code::invalid);
    REQUIRE(refused.error().message ==
            "the device stream belongs to device 0, but the communicator's device is 1");
    const auto of_threads = first->owns(per_thread_stream());
    REQUIRE_FALSE(of_threads);
    REQUIRE(of_threads.error().code == Code::invalid);
}

TEST_CASE("errors: a broken device's are values with the driver's words") {
    const auto context = Context::retain(fake_driver(), 3);
    const auto event = DeviceEvent::create(*context);
    const Context::Scope current(*context);
    fake_cuda_break(3, 700);
    for (const auto& failed :
         {event->record(nullptr), Result<>(event->passed().map([](bool) {}))}) {
        REQUIRE_FALSE(failed);
        REQUIRE(failed.error().code == Code::system);
        REQUIRE(failed.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
    }
    REQUIRE_FALSE(DeviceStream::create(*context));
    void* on_device = fake_cuda_alloc(3, 100);
    const auto asked = memory_of(on_device);
    REQUIRE_FALSE(asked);
    REQUIRE(asked.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
    for (const Status nothing_there : {1, 3, 4, 201}) {
        fake_cuda_break(3, nothing_there);
        REQUIRE(memory_of(on_device) == MemoryKind{});
    }
    fake_cuda_break(3, 0);
    fake_cuda_free(on_device);
}

TEST_CASE("handles: everything that was made is gone, and nothing was done wrong") {
    { const auto context = Context::retain(fake_driver(), 0); }
    REQUIRE(fake_cuda_live() == 0);
    REQUIRE(std::string(fake_cuda_violations()) == "");
}
