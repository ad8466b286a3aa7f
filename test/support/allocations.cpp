// In a file of its own: a compiler that sees both the replacement and its use warns about free().
#include "process/allocations.h"

#include <cstdlib>
#include <new>

void* operator new(std::size_t bytes) {
    if (counting) allocations.fetch_add(1);
    if (void* p = std::malloc(bytes ? bytes : 1)) return p;
    throw std::bad_alloc();
}
// The library's own would do, but the address sanitizer has one of its own.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    if (counting) allocations.fetch_add(1);
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
