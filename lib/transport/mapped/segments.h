// Shared memory in segments: one process makes them, others map them. A descriptor passes once for
// each segment; whatever lies in it is then known by its place, a number that all of them share.
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
    /// Each is four times as long as the one before: these are more than memory can hold.
    static constexpr uint32_t max_segments = 16;

    /// nullptr: that segment is not here (yet), or the bytes run past its end.
    std::byte* at(SegmentPlace place, std::size_t bytes) const;
    /// Allocates the pages of a range that at() knows, as back_memory.
    Result<> back(SegmentPlace place, std::size_t bytes) const;
    /// Gives a range's pages back to the system; they are zero when they are next looked at. False
    /// where it will not have them.
    bool clear(SegmentPlace place, std::size_t bytes) const;

    /// The segments known are the first `count()`.
    uint32_t count() const { return count_.load(std::memory_order_acquire); }
    int fd(uint32_t index) const { return segments_[index].memory.fd.get(); }
    std::size_t bytes(uint32_t index) const { return segments_[index].bytes; }

    /// A segment of this process's own.
    Result<> make(std::size_t bytes);
    /// A peer's, which must be its next; one that came before, another way, is nothing new.
    Result<> take(uint32_t index, UniqueFd fd, std::size_t bytes);

private:
    struct Segment {
        SharedMemory memory;
        std::size_t bytes = 0;
    };
    Result<> check_room() const;
    void publish(SharedMemory memory, std::size_t bytes);

    std::mutex mutex_;  // held by who adds
    std::atomic<uint32_t> count_{0};
    std::array<Segment, max_segments> segments_;
};

/// Memory out of segments that this process makes as it needs them. Any thread.
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
    /// No process touches the block any more.
    void give(const Block& block);

    const std::shared_ptr<SegmentTable>& segments() const { return segments_; }

private:
    using Free = std::map<uint32_t, uint32_t>;  // first page, pages
    std::optional<SegmentPlace> find(uint32_t pages);
    void insert(SegmentPlace place, uint32_t pages);

    std::mutex mutex_;
    std::vector<Free> free_;  // by segment
    std::shared_ptr<SegmentTable> segments_ = std::make_shared<SegmentTable>();
};

}  // namespace tutti
