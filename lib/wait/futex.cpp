#include "wait/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <climits>

namespace tutti::futex {
namespace {

// The system call's interface. Headers of systems that tutti is built on may be older than kernels
// that it runs on.
constexpr long waitv_number = 449;
struct KernelWaiter {
    uint64_t expected;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};
constexpr uint32_t word_of_32_bits = 2;

long waitv(const KernelWaiter* waiters, std::size_t count) {
    return ::syscall(waitv_number, waiters, static_cast<unsigned>(count), 0U, nullptr, 0);
}

}  // namespace

bool sleep_on_any(std::span<const WaitedWord> words) {
    assert(words.size() <= most_words);
    std::array<KernelWaiter, most_words> waiters;
    for (std::size_t i = 0; i < words.size(); ++i)
        waiters[i] = {.expected = words[i].expected,
                      .address = reinterpret_cast<uintptr_t>(words[i].word),
                      .flags = word_of_32_bits |
                               (words[i].shared ? 0U : static_cast<uint32_t>(FUTEX_PRIVATE_FLAG)),
                      .reserved = 0};
    if (waitv(waiters.data(), words.size()) >= 0) return true;
    return errno == EAGAIN || errno == EINTR;
}

void wake_all(const std::atomic<uint32_t>& word, bool shared) {
    ::syscall(SYS_futex, &word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
              0);
}

bool can_sleep_on_any() {
    // No words are an invalid argument; a system without the call has another error.
    return waitv(nullptr, 0) < 0 && errno == EINVAL;
}

}  // namespace tutti::futex
