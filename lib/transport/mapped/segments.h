// Shared memory in segments: one process makes them, other processes map them. Each segment's
// descriptor is sent once. After that a place (segment and page number) names memory in it, the
// same for all processes.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/mapped/shared_memory.h"

namespace tutti {

inline constexpr std::size_t page_bytes = 4096;

/// A page in one process's segments, by numbers that all processes share.
struct SegmentPlace {
    uint32_t segment = 0;
    uint32_t page = 0;  // of page_bytes, in its segment
    bool operator==(const SegmentPlace&) const = default;

    SegmentPlace after(std::size_t bytes) const {
        return {segment, page + static_cast<uint32_t>(bytes / page_bytes)};
    }
};

/// The segments of one process, as this one maps them. Any thread; at() takes no lock.
class SegmentTable {
public:
    /// Each segment is four times as large as the one before, so 16 segments exceed any machine's
    /// memory.
    static constexpr uint32_t max_segments = 16;

    /// nullptr: that segment is not mapped here (yet), or the bytes run past its end.
    std::byte* at(SegmentPlace place, std::size_t bytes) const;
    /// Allocates the pages of a range that at() knows, as back_memory().
    Result<> back(SegmentPlace place, std::size_t bytes) const;
    /// Gives a range's pages back to the system; they read as zero next time. False: the system
    /// cannot.
    bool clear(SegmentPlace place, std::size_t bytes) const;

    /// The segments known are the first `count()`.
    uint32_t count() const { return count_.load(std::memory_order_acquire); }
    int fd(uint32_t index) const { return segments_[index].memory.fd.get(); }
    std::size_t bytes(uint32_t index) const { return segments_[index].bytes; }

    /// A segment of this process's own.
    Result<> make(std::size_t bytes);
    /// Maps a peer's segment, which must be the next one. A segment that is mapped already is
    /// ignored.
    Result<> take(uint32_t index, UniqueFd fd, std::size_t bytes);

private:
    struct Segment {
        SharedMemory memory;
        std::size_t bytes = 0;
    };
    Result<> check_room() const;
    void publish(SharedMemory memory, std::size_t bytes);

    std::mutex mutex_;  // held by the thread that adds a segment
    std::atomic<uint32_t> count_{0};
    std::array<Segment, max_segments> segments_;
};

/// Allocates memory from segments that this process makes on demand. Any thread.
class Arena {
public:
    struct Block {
        SegmentPlace place;
        std::byte* data = nullptr;
        std::size_t bytes = 0;
    };

    /// Zeroed, page-aligned. Only the first backed_bytes take memory; the rest must be backed
    /// before it is written (SegmentTable::back). no_memory, system: as make_shared_memory.
    Result<Block> take(std::size_t bytes, std::size_t backed_bytes);
    /// Call once no process uses the block any more.
    void give(const Block& block);

    const std::shared_ptr<SegmentTable>& segments() const { return segments_; }

private:
    using Free = std::map<uint32_t, uint32_t>;  // first page → number of pages
    std::optional<SegmentPlace> find(uint32_t pages);
    void insert(SegmentPlace place, uint32_t pages);

    std::mutex mutex_;
    std::vector<Free> free_;  // by segment
    std::shared_ptr<SegmentTable> segments_ = std::make_shared<SegmentTable>();
};

}  // namespace tutti
