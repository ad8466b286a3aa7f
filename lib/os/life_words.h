// Words in shared memory that the kernel marks when a thread ends, whatever ends it: the robust
// list of the thread (man 2 set_robust_list). A killed process's threads end before its memory is
// freed and its sockets are closed, which takes 80 ms for each GB.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace tutti {

/// The kernel writes and compares `value`. Eight bytes apart, because the entries of a robust list
/// in private memory are.
struct alignas(8) LifeWord {
    std::atomic<uint32_t> value;

    static constexpr uint32_t no_owner = 0;
    /// The owner has stopped without a mark of the kernel's: no thread has this id.
    static constexpr uint32_t left = 0x3fff'ffff;
    /// The kernel sets this bit instead of the owner's id.
    static constexpr uint32_t died = 0x4000'0000;
    /// A process sleeps on the word: the kernel wakes one sleeper together with the mark.
    static constexpr uint32_t watched = 0x8000'0000;
};

/// The words that the calling thread owns: the kernel marks those that still have the thread's id
/// when it ends. One object for a thread; the same thread destroys it. Meanwhile a robust mutex of
/// the program that this thread locks is an ordinary one.
class OwnedLifeWords {
public:
    /// Does not write to the words. unsupported: this system has no robust lists.
    static Result<std::unique_ptr<OwnedLifeWords>> take(std::span<LifeWord> words);
    ~OwnedLifeWords();
    OwnedLifeWords(const OwnedLifeWords&) = delete;

    /// The thread's id, for the words.
    uint32_t owner() const { return owner_; }

private:
    struct List;
    explicit OwnedLifeWords(std::span<LifeWord> words);

    const std::unique_ptr<List> list_;
    const uint32_t owner_;
};

}  // namespace tutti
