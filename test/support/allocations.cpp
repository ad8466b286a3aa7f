// In a library of its own: a compiler that sees both the replacement and its use warns about free().
#include "support/allocations.h"

#include <cstdlib>
#include <new>

namespace {

void count(std::size_t bytes) {
    if (!counting) return;
    allocations.fetch_add(1);
    allocated_bytes.fetch_add(static_cast<long>(bytes));
}

bool refused() {
    return refused_in >= 0 && refused_in-- == 0;
}

}  // namespace

void* operator new(std::size_t bytes) {
    count(bytes);
    if (refused()) throw std::bad_alloc();
    if (void* p = std::malloc(bytes ? bytes : 1)) return p;
    throw std::bad_alloc();
}
// The library's own would do, but the address sanitizer has one of its own.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    count(bytes);
    if (refused()) return nullptr;
    return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
