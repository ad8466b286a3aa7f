// Notices when memory is unmapped, moved or emptied, by userfaultfd: the kernel holds the thread
// that unmaps until our thread has read of it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "os/thread.h"
#include "transport/registration/registration_cache.h"

namespace tutti {

/// One per cache. Its thread takes no lock that a cache's caller could hold while memory is
/// unmapped, so nobody waits for each other in a circle.
class MemoryMonitor final : public MemoryWatch {
public:
    /// unsupported: this system does not let us (old kernel, or a sandbox that forbids it).
    static Result<std::unique_ptr<MemoryMonitor>> start();
    ~MemoryMonitor() override;

    bool watch(const MemoryRange& range) override;
    void unwatch(const MemoryRange& range) override;
    bool gone(MemoryRange& range) override;

private:
    MemoryMonitor(UniqueFd faults, UniqueFd stop);
    void run();
    void read_one();

    static constexpr std::size_t most_ranges = 256;

    const UniqueFd faults_, stop_;
    // Odd while an event is being read and not yet noted: a thread whose munmap has returned sees
    // an odd number, or the note.
    std::atomic<uint64_t> turns_{0};
    std::atomic<std::size_t> noted_{0};
    std::mutex mutex_;  // guards the ranges; nothing is allocated or freed under it
    std::array<MemoryRange, most_ranges> ranges_;
    bool overflowed_ = false;
    Thread thread_;
};

}  // namespace tutti
