// The caller's memory that a network library has registered, kept so that buffers that are used
// again need not be registered again. The cache reaches the library through an interface.
//
// Memory may be unmapped while it is registered: the program maps something else at the same
// address, and the registration still means the old pages. So memory that is not in use stays
// registered only if a watch reports unmapping, or if the program has promised (add) to keep it.
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
    /// Takes one range that was unmapped since the last call; false: there is none. Once munmap has
    /// returned, in any thread, its range is reported here.
    virtual bool gone(MemoryRange& range) = 0;
};

class RegistrationCache {
public:
    struct Options {
        MemoryRegistrar* registrar = nullptr;
        MemoryWatch* watch = nullptr;  // nullptr: the cache keeps only added memory
        std::size_t max_bytes = std::size_t{1} << 30;  // of entries kept without users
        std::size_t max_count = 1024;
    };
    /// Registered memory; it stays registered until release().
    struct Entry {
        MemoryRange range;
        void* handle = nullptr;

    private:
        friend class RegistrationCache;
        int users = 0;
        bool watched = false;
        bool unused = false;  // kept without users
        bool stale = false;   // not in the map: deregistered when its last user releases it
        std::list<Entry*>::iterator idle;
    };

    explicit RegistrationCache(const Options& options) : options_(options) {}
    ~RegistrationCache();
    RegistrationCache(const RegistrationCache&) = delete;

    /// A registration that covers these bytes. Fails as the registrar does.
    Result<Entry*> acquire(const std::byte* data, std::size_t bytes);
    void release(Entry* entry);

    /// Registers memory now and keeps it registered until remove(). The caller keeps it mapped
    /// until then.
    Result<> add(const std::byte* data, std::size_t bytes);
    void remove(const std::byte* data, std::size_t bytes);

    std::size_t count() const { return entries_.size(); }
    std::size_t idle_bytes() const { return idle_bytes_; }

private:
    using Entries = std::map<std::uintptr_t, std::unique_ptr<Entry>>;

    enum class Keep : uint8_t { watched, added };  // keep in the map if it can be watched; keep
                                                   // always

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
    Entries entries_;  // by first address; no two overlap
    std::vector<std::unique_ptr<Entry>> stale_;
    std::list<Entry*> idle_;  // neither used nor added; the longest unused first
    std::size_t idle_bytes_ = 0;
    std::vector<std::pair<MemoryRange, Entry*>> added_;
};

}  // namespace tutti
