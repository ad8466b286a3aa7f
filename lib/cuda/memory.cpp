#include "cuda/memory.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "os/process.h"

namespace tutti::device {
namespace {

struct StackRange {
    std::uintptr_t begin = 0, end = 0;
    bool has(std::uintptr_t at) const { return at >= begin && at < end; }
};

// A thread's stack does not move while the thread runs, so the answer may be cached.
StackRange find_stack() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
    void* low = nullptr;
    std::size_t bytes = 0;
    const bool known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
    pthread_attr_destroy(&attributes);
    const auto begin = reinterpret_cast<std::uintptr_t>(low);
    // The main thread's stack grows, and its limit may be infinite: count only the used part.
    const auto used = reinterpret_cast<std::uintptr_t>(&attributes);
    return known ? StackRange{std::max(begin, used - std::min<std::uintptr_t>(used, 64 * 1024)),
                              begin + bytes}
                 : StackRange{};
}

// The kernel maps no other memory between the start of the heap and its present end.
bool in_heap(std::uintptr_t at) {
    static const std::uintptr_t begin = process_field(0, ProcessField::heap_begin);
    return begin != 0 && at >= begin && at < reinterpret_cast<std::uintptr_t>(::sbrk(0));
}

bool surely_host(std::uintptr_t at) {
    thread_local const StackRange stack = find_stack();
    return stack.has(at) || in_heap(at);
}

// CUpointer_attribute and CUmemorytype.
constexpr int attribute_memory_type = 2, attribute_is_managed = 8, attribute_ordinal = 9;
constexpr unsigned type_device = 2;

// The driver is shutting down, or has no device or context for this thread. Any other error is a
// device's failure, which every later call reports.
bool has_no_devices(Status status) {
    constexpr Status invalid_value = 1, deinitialized = 4, invalid_context = 201;
    return status == not_initialized || status == invalid_value || status == deinitialized ||
           status == invalid_context;
}

}  // namespace

std::string describe(MemoryKind kind) {
    return kind.on_device() ? fmt::format("memory of device {}", kind.device) : "host memory";
}

// Unknown addresses are no error: their attributes are zero.
Result<MemoryKind> ask_driver(const Driver& driver, const void* pointer) {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    if (at == 0 || surely_host(at)) return MemoryKind{};
    unsigned type = 0, managed = 0;
    int ordinal = MemoryKind::host;
    int attributes[] = {attribute_memory_type, attribute_is_managed, attribute_ordinal};
    void* values[] = {&type, &managed, &ordinal};
    const Status status = driver.pointer_attributes(std::size(attributes), attributes, values, at);
    if (has_no_devices(status)) return MemoryKind{};
    TUTTI_TRY(check(driver, status, "asking whether a buffer is GPU memory"));
    const bool here = type == type_device || managed != 0;
    return here && ordinal >= 0 ? MemoryKind{ordinal} : MemoryKind{};
}

Result<bool> is_managed(const Driver& driver, const void* pointer) {
    unsigned managed = 0;
    int attributes[] = {attribute_is_managed};
    void* values[] = {&managed};
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    TUTTI_TRY(check(driver, driver.pointer_attributes(1, attributes, values, at),
                    "asking whether a buffer is managed memory"));
    return managed != 0;
}

}  // namespace tutti::device
