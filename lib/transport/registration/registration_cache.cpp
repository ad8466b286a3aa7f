#include "transport/registration/registration_cache.h"

#include <unistd.h>

#include <algorithm>

namespace tutti {
namespace {

// 4096 on x86-64; on aarch64 the kernel's configuration decides, up to 65,536.
const auto kernel_page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Whole pages: the kernel pins, unmaps and watches pages.
MemoryRange pages_of(const std::byte* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return {begin / kernel_page_bytes * kernel_page_bytes,
            round_up(begin + std::max<std::size_t>(bytes, 1), kernel_page_bytes)};
}

}  // namespace

RegistrationCache::~RegistrationCache() {
    for (auto& [begin, entry] : entries_) {
        unwatch(*entry);
        options_.registrar->deregister(entry->handle);
    }
    for (auto& entry : stale_) options_.registrar->deregister(entry->handle);
}

Result<RegistrationCache::Entry*> RegistrationCache::acquire(const std::byte* data,
                                                             std::size_t bytes) {
    return get(pages_of(data, bytes), Keep::watched);
}

Result<RegistrationCache::Entry*> RegistrationCache::get(const MemoryRange& wanted, Keep keep) {
    forget_what_went();
    const auto at = first_meeting(wanted);
    if (at == entries_.end() || !at->second->range.covers(wanted)) return make(wanted, keep);
    Entry& entry = *at->second;
    if (entry.users++ == 0) mark_used(entry);
    return &entry;
}

void RegistrationCache::release(Entry* entry) {
    if (--entry->users > 0) return;
    if (entry->stale) {
        options_.registrar->deregister(entry->handle);
        std::erase_if(stale_, [&](const auto& s) { return s.get() == entry; });
    } else if (entry->watched) {
        mark_unused(*entry);
        shrink();
    } else {
        retire(entries_.find(entry->range.begin));  // added before, and removed since
    }
}

Result<> RegistrationCache::add(const std::byte* data, std::size_t bytes) {
    TUTTI_ASSIGN(Entry* const entry, get(pages_of(data, bytes), Keep::added));
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    added_.push_back({{begin, begin + bytes}, entry});
    return {};
}

void RegistrationCache::remove(const std::byte* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const auto found = std::find_if(added_.begin(), added_.end(), [&](const auto& a) {
        return a.first.begin == begin && a.first.end == begin + bytes;
    });
    if (found == added_.end()) return;
    Entry* const entry = found->second;
    added_.erase(found);
    release(entry);
    // From now on the caller may unmap it, watched or not.
    forget(pages_of(data, bytes));
}

void RegistrationCache::forget_what_went() {
    MemoryRange range;
    while (options_.watch && options_.watch->gone(range)) forget(range);
}

void RegistrationCache::forget(const MemoryRange& range) {
    auto at = first_meeting(range);
    while (at != entries_.end() && at->second->range.overlaps(range)) {
        const auto next = std::next(at);
        retire(at);
        at = next;
    }
}

RegistrationCache::Entries::iterator RegistrationCache::first_meeting(const MemoryRange& range) {
    auto at = entries_.upper_bound(range.begin);
    if (at != entries_.begin() && std::prev(at)->second->range.overlaps(range))
        return std::prev(at);
    return at != entries_.end() && at->second->range.overlaps(range) ? at : entries_.end();
}

// Merges overlapping entries, so that a buffer used in ever other pieces ends as one entry.
MemoryRange RegistrationCache::with_neighbours(const MemoryRange& wanted) {
    MemoryRange whole = wanted;
    for (auto at = first_meeting(wanted); at != entries_.end(); ++at) {
        const MemoryRange& range = at->second->range;
        if (!range.overlaps(wanted)) break;
        whole = {std::min(whole.begin, range.begin), std::max(whole.end, range.end)};
    }
    return whole;
}

Result<void*> RegistrationCache::register_range(const MemoryRange& range) {
    return options_.registrar->register_memory(reinterpret_cast<std::byte*>(range.begin),
                                               range.bytes());
}

Result<RegistrationCache::Entry*> RegistrationCache::make(const MemoryRange& wanted, Keep keep) {
    auto entry = std::make_unique<Entry>();
    entry->range = wanted;
    if (options_.watch || keep == Keep::added) entry->range = with_neighbours(wanted);
    // Watches the range before registering it, so that no unmapping in between is missed.
    const auto watch = [&] {
        forget(entry->range);
        entry->watched = options_.watch->watch(entry->range);
    };
    if (options_.watch) watch();
    auto handle = register_range(entry->range);
    // Either the merged range was too large, or part of it is unmapped and no watch saw that.
    if (!handle && entry->range.bytes() > wanted.bytes()) {
        unwatch(*entry);
        entry->range = wanted;
        if (options_.watch) watch();
        handle = register_range(wanted);
    }
    if (!handle && !idle_.empty()) {
        while (!idle_.empty()) retire(entries_.find(idle_.front()->range.begin));
        handle = register_range(entry->range);
    }
    if (!handle) {
        unwatch(*entry);
        return tl::unexpected(std::move(handle).error());
    }
    entry->handle = *handle;
    Entry* const made = entry.get();
    made->users = 1;
    if (entry->watched || keep == Keep::added) {
        forget(made->range);
        entries_[made->range.begin] = std::move(entry);
    } else {
        made->stale = true;
        stale_.push_back(std::move(entry));
    }
    return made;
}

// Takes an entry out of the map, so that acquire() cannot return it any more.
void RegistrationCache::retire(Entries::iterator at) {
    std::unique_ptr<Entry> entry = std::move(at->second);
    entries_.erase(at);
    // Unwatches now rather than when the last user releases it: by then a new entry at the same
    // place may be watched.
    unwatch(*entry);
    entry->stale = true;
    if (entry->users > 0) {
        stale_.push_back(std::move(entry));
        return;
    }
    if (entry->unused) mark_used(*entry);
    options_.registrar->deregister(entry->handle);
}

void RegistrationCache::mark_unused(Entry& entry) {
    entry.idle = idle_.insert(idle_.end(), &entry);
    entry.unused = true;
    idle_bytes_ += entry.range.bytes();
}

void RegistrationCache::mark_used(Entry& entry) {
    idle_.erase(entry.idle);
    entry.unused = false;
    idle_bytes_ -= entry.range.bytes();
}

void RegistrationCache::shrink() {
    while (!idle_.empty() &&
           (idle_bytes_ > options_.max_bytes || idle_.size() > options_.max_count))
        retire(entries_.find(idle_.front()->range.begin));
}

void RegistrationCache::unwatch(Entry& entry) {
    if (std::exchange(entry.watched, false)) options_.watch->unwatch(entry.range);
}

}  // namespace tutti
