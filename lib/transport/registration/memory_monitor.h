// Notices through userfaultfd when the program unmaps, moves or empties memory: the kernel holds
// the unmapping thread until the monitor's thread has read the event.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "os/thread.h"
#include "transport/registration/registration_cache.h"

namespace tutti {

/// One per cache. Its thread takes no lock that a cache's caller could hold while it unmaps memory,
/// so the two cannot deadlock.
class MemoryMonitor final : public MemoryWatch {
public:
    /// unsupported: this system does not allow userfaultfd (old kernel, or a sandbox that forbids
    /// it).
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
    // Odd while the monitor's thread reads an event and has not noted it yet. A thread whose munmap
    // has returned sees an odd number, or the noted range.
    std::atomic<uint64_t> turns_{0};
    std::atomic<std::size_t> noted_{0};
    std::mutex mutex_;  // guards the ranges; no thread allocates or frees while it holds it
    std::array<MemoryRange, most_ranges> ranges_;
    bool overflowed_ = false;
    Thread thread_;
};

}  // namespace tutti
