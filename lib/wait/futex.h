// Sleeping on several words of memory at once, also in memory that processes share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::futex {

/// A word on which a thread sleeps as long as it has that value.
struct WaitedWord {
    const std::atomic<uint32_t>* word = nullptr;
    uint32_t expected = 0;
    bool shared = false;  // threads of other processes change and wake it
};
inline constexpr std::size_t most_words = 128;

/// Sleeps until a word is woken or has another value; may return earlier. False: the system refuses
/// to wait for these words, so a further call would not wait either.
bool sleep_on_any(std::span<const WaitedWord> words);
/// Wakes all threads that sleep on the word; of this process only unless shared.
void wake_all(const std::atomic<uint32_t>& word, bool shared);
/// False if the kernel is older than 5.16, or if a seccomp filter forbids the system call.
bool can_sleep_on_any();

}  // namespace tutti::futex
