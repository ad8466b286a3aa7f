// Memory that libfabric may touch: our own buffers, and the caller's where the provider wants it
// registered.
#pragma once

#include <memory>

#include "transport/registration/memory_monitor.h"
#include "transports/ofi/objects.h"

namespace tutti::ofi {

/// Why memory could not be registered, for people; names `ulimit -l` where that may be it.
/// code: -FI_E…; locked_limit_bytes: RLIMIT_MEMLOCK, ~0: none.
std::string registration_failure(std::size_t bytes, long code, uint64_t locked_limit_bytes);

/// What libfabric wants to hear of a piece of memory with each call; released with its owner.
class Registered {
public:
    Registered() = default;
    Registered(RegistrationCache* cache, RegistrationCache::Entry* entry)
        : cache_(cache), entry_(entry) {}
    Registered(Registered&& other) noexcept
        : cache_(other.cache_), entry_(std::exchange(other.entry_, nullptr)) {}
    Registered& operator=(Registered&& other) noexcept {
        release();
        cache_ = other.cache_;
        entry_ = std::exchange(other.entry_, nullptr);
        return *this;
    }
    ~Registered() { release(); }

    void* descriptor() const {
        return entry_ ? fi_mr_desc(static_cast<fid_mr*>(entry_->handle)) : nullptr;
    }

private:
    void release() {
        if (entry_) cache_->release(std::exchange(entry_, nullptr));
    }
    RegistrationCache* cache_ = nullptr;
    RegistrationCache::Entry* entry_ = nullptr;
};

class Memory final : private MemoryRegistrar {
public:
    /// force: register although the provider does not ask for it (tests).
    Memory(const Objects& objects, bool force);

    /// Nothing is registered, and that is right, where the provider does not want it.
    Result<Registered> use(const std::byte* data, std::size_t bytes);
    Result<> add(const std::byte* data, std::size_t bytes);
    void remove(const std::byte* data, std::size_t bytes);
    /// Deregisters what was kept; nothing is used any more.
    void close() { cache_.reset(); }

private:
    Result<void*> register_memory(std::byte* data, std::size_t bytes) override;
    void deregister(void* handle) override;

    const Objects& objects_;
    const int mr_mode_;
    uint64_t next_key_ = 1;
    std::unique_ptr<MemoryMonitor> monitor_;
    std::unique_ptr<RegistrationCache> cache_;  // nullptr: nothing is registered, or any more
};

/// Page-aligned memory of our own for messages, registered while it lives.
class RegisteredBlock {
public:
    static Result<RegisteredBlock> make(Memory& memory, std::size_t bytes);
    RegisteredBlock(RegisteredBlock&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          bytes_(other.bytes_),
          registered_(std::move(other.registered_)) {}
    RegisteredBlock& operator=(RegisteredBlock&&) = delete;
    ~RegisteredBlock();

    std::byte* data() const { return data_; }
    void* descriptor() const { return registered_.descriptor(); }
    void deregister() { registered_ = {}; }

private:
    RegisteredBlock(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    std::byte* data_;
    std::size_t bytes_;
    Registered registered_;
};

}  // namespace tutti::ofi
