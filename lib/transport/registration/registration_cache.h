// Which of the caller's memory a network library has registered, so that buffers that are used
// again need not be registered again. Knows no library: that is behind an interface.
//
// Memory may go away while it is registered: the program unmaps it and maps something else at the
// same address, and the registration still means the old pages. So memory that is not in use stays
// registered only if a watch says when it goes, or if the program has promised (add) to keep it.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tutti {

/// Bytes from begin up to, not including, end.
struct MemoryRange {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::size_t bytes() const { return end - begin; }
    bool covers(const MemoryRange& other) const { return begin <= other.begin && other.end <= end; }
    bool overlaps(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

/// Registers memory with a network card or a library.
class MemoryRegistrar {
public:
    virtual ~MemoryRegistrar() = default;
    virtual Result<void*> register_memory(std::byte* data, std::size_t bytes) = 0;
    virtual void deregister(void* handle) = 0;
};

/// Notices when the program gives memory back to the system.
class MemoryWatch {
public:
    virtual ~MemoryWatch() = default;
    /// False: this memory cannot be watched.
    virtual bool watch(const MemoryRange& range) = 0;
    virtual void unwatch(const MemoryRange& range) = 0;
    /// One range that went since it was last asked; false: no more. After munmap returned, in
    /// any thread, its range is here.
    virtual bool gone(MemoryRange& range) = 0;
};

class RegistrationCache {
public:
    struct Options {
        MemoryRegistrar* registrar = nullptr;
        MemoryWatch* watch = nullptr;  // nullptr: nothing is kept but what was added
        std::size_t max_bytes = std::size_t{1} << 30;  // of what is kept without being in use
        std::size_t max_count = 1024;
    };
    /// Registered memory; it stays so until release().
    struct Entry {
        MemoryRange range;
        void* handle = nullptr;

    private:
        friend class RegistrationCache;
        int users = 0;
        bool watched = false;
        bool unused = false;  // kept without users
        bool stale = false;   // not in the map: goes with its last user
        std::list<Entry*>::iterator idle;
    };

    explicit RegistrationCache(const Options& options) : options_(options) {}
    ~RegistrationCache();
    RegistrationCache(const RegistrationCache&) = delete;

    /// A registration that covers these bytes. Fails as the registrar does.
    Result<Entry*> acquire(const std::byte* data, std::size_t bytes);
    void release(Entry* entry);

    /// Memory that the caller keeps mapped until remove(): registered now, and until then.
    Result<> add(const std::byte* data, std::size_t bytes);
    void remove(const std::byte* data, std::size_t bytes);

    std::size_t count() const { return entries_.size(); }
    std::size_t idle_bytes() const { return idle_bytes_; }

private:
    using Entries = std::map<std::uintptr_t, std::unique_ptr<Entry>>;

    enum class Keep : uint8_t { watched, added };  // stays in the map if it can be watched; always

    Result<Entry*> get(const MemoryRange& wanted, Keep keep);
    Result<Entry*> make(const MemoryRange& wanted, Keep keep);
    MemoryRange with_neighbours(const MemoryRange& wanted);
    Result<void*> register_range(const MemoryRange& range);
    Entries::iterator first_meeting(const MemoryRange& range);
    void forget_what_went();
    void forget(const MemoryRange& range);
    void retire(Entries::iterator at);
    void mark_unused(Entry& entry);
    void mark_used(Entry& entry);
    void shrink();
    void unwatch(Entry& entry);

    const Options options_;
    Entries entries_;  // by where they begin; no two meet
    std::vector<std::unique_ptr<Entry>> stale_;
    std::list<Entry*> idle_;  // without users and not added, the longest unused first
    std::size_t idle_bytes_ = 0;
    std::vector<std::pair<MemoryRange, Entry*>> added_;
};

}  // namespace tutti
