#include "transport/mapped/segments.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <limits>

namespace tutti {
namespace {

constexpr std::size_t first_segment_bytes = std::size_t{16} << 20;
constexpr std::size_t segment_growth = 2;  // as a power of two
constexpr std::size_t max_segment_bytes =
    std::size_t{std::numeric_limits<uint32_t>::max()} * page_bytes;

}  // namespace

std::byte* SegmentTable::at(SegmentPlace place, std::size_t bytes) const {
    // Pairs with publish(): a segment with an index below the count is complete.
    if (place.segment >= count_.load(std::memory_order_acquire)) return nullptr;
    const Segment& segment = segments_[place.segment];
    const std::size_t offset = std::size_t{place.page} * page_bytes;
    if (offset > segment.bytes || bytes > segment.bytes - offset) return nullptr;
    return segment.memory.data.get() + offset;
}

Result<> SegmentTable::back(SegmentPlace place, std::size_t bytes) const {
    assert(at(place, bytes) != nullptr);
    return back_memory(fd(place.segment), std::size_t{place.page} * page_bytes, bytes);
}

bool SegmentTable::clear(SegmentPlace place, std::size_t bytes) const {
    assert(at(place, bytes) != nullptr);
    return release_memory(fd(place.segment), std::size_t{place.page} * page_bytes, bytes);
}

Result<> SegmentTable::check_room() const {
    if (count() < max_segments) return {};
    return fail(Code::no_memory, "all {} segments of shared memory are in use", max_segments)
        .advice("destroy communicators that are not used any more");
}

void SegmentTable::publish(SharedMemory memory, std::size_t bytes) {
    const uint32_t index = count_.load(std::memory_order_relaxed);
    segments_[index].memory = std::move(memory);
    segments_[index].bytes = bytes;
    count_.store(index + 1, std::memory_order_release);
}

Result<> SegmentTable::make(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    TUTTI_TRY(check_room());
    TUTTI_ASSIGN(SharedMemory memory, make_shared_memory("tutti", bytes, 0));
    publish(std::move(memory), bytes);
    return {};
}

Result<> SegmentTable::take(uint32_t index, UniqueFd fd, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (index < count()) return {};
    TUTTI_TRY(check_room());
    if (index > count())
        return fail(Code::invalid, "a peer sent segment {} of its shared memory instead of {}",
                    index, count())
            .advice("install the same version of tutti on every host");
    TUTTI_ASSIGN(auto data, map_shared_memory(fd.get(), bytes));
    publish({std::move(fd), std::move(data)}, bytes);
    return {};
}

std::optional<SegmentPlace> Arena::find(uint32_t pages) {
    for (uint32_t segment = 0; segment < free_.size(); ++segment) {
        Free& free = free_[segment];
        const auto found =
            std::find_if(free.begin(), free.end(), [&](auto& f) { return f.second >= pages; });
        if (found == free.end()) continue;
        const auto [first, length] = *found;
        free.erase(found);
        if (length > pages) free.emplace(first + pages, length - pages);
        return SegmentPlace{segment, first};
    }
    return std::nullopt;
}

void Arena::insert(SegmentPlace place, uint32_t pages) {
    Free& free = free_[place.segment];
    auto next = free.lower_bound(place.page);
    if (next != free.end() && next->first == place.page + pages) {
        pages += next->second;
        next = free.erase(next);
    }
    if (next != free.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == place.page) {
            before->second += pages;
            return;
        }
    }
    free.emplace(place.page, pages);
}

Result<Arena::Block> Arena::take(std::size_t bytes, std::size_t backed_bytes) {
    assert(bytes > 0 && backed_bytes <= bytes);
    bytes = round_up(bytes, page_bytes);
    const auto pages = static_cast<uint32_t>(bytes / page_bytes);
    const std::lock_guard lock(mutex_);
    auto place = find(pages);
    if (!place) {
        const std::size_t next = first_segment_bytes << segment_growth * free_.size();
        if (bytes > max_segment_bytes)
            return fail(Code::no_memory, "{} bytes of shared memory are over the limit of {}",
                        bytes, max_segment_bytes);
        const std::size_t most =
            std::min(max_segment_bytes, largest_file_bytes() / page_bytes * page_bytes);
        const std::size_t made = std::max(std::min(next, most), bytes);
        TUTTI_TRY(segments_->make(made));
        free_.emplace_back().emplace(0, static_cast<uint32_t>(made / page_bytes));
        place = find(pages);
    }
    if (backed_bytes > 0) {
        if (auto backed = segments_->back(*place, backed_bytes); !backed) {
            insert(*place, pages);
            return tl::unexpected(std::move(backed).error());
        }
    }
    return Block{*place, segments_->at(*place, bytes), bytes};
}

void Arena::give(const Block& block) {
    // If the system cannot clear a block, the arena does not reuse it: zeroing it would allocate
    // every page.
    if (!segments_->clear(block.place, block.bytes)) return;
    const std::lock_guard lock(mutex_);
    insert(block.place, static_cast<uint32_t>(block.bytes / page_bytes));
}

}  // namespace tutti
