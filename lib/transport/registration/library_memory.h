// Memory that a message library (UCX or libfabric) may access: registered with the library, so that
// the network card can read and write it, if the library requires that; and kept registered for the
// next use.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "transport/registration/memory_monitor.h"

namespace tutti {

class LibraryMemory;

/// One use of memory, which ends when this object is destroyed.
class Registered {
public:
    Registered() = default;
    Registered(LibraryMemory* memory, RegistrationCache::Entry* entry)
        : memory_(memory), entry_(entry) {}
    Registered(Registered&& other) noexcept
        : memory_(other.memory_), entry_(std::exchange(other.entry_, nullptr)) {}
    Registered& operator=(Registered&& other) noexcept {
        release();
        memory_ = other.memory_;
        entry_ = std::exchange(other.entry_, nullptr);
        return *this;
    }
    ~Registered() { release(); }

    /// The registrar's handle (its memory key or descriptor). nullptr: the library needs no
    /// registration.
    void* handle() const { return entry_ ? entry_->handle : nullptr; }

private:
    void release() {
        if (entry_) release_entry();
    }
    void release_entry();

    LibraryMemory* memory_ = nullptr;
    RegistrationCache::Entry* entry_ = nullptr;
};

/// The registered memory of one library object. Must outlive every Registered that it has made. One
/// thread at a time.
class LibraryMemory {
public:
    /// registrar: must outlive this object; nullptr: the library needs no registration. library:
    /// its name, for the log.
    LibraryMemory(MemoryRegistrar* registrar, std::string_view library);

    /// Registers the memory, or finds it registered; it stays so at least until the result is
    /// destroyed. An error: the registrar's.
    Result<Registered> use(const std::byte* data, std::size_t bytes) {
        if (!cache_) return Registered();
        TUTTI_ASSIGN(RegistrationCache::Entry* const entry, cache_->acquire(data, bytes));
        return Registered(this, entry);
    }
    /// Registers the caller's memory in advance, for any number of uses. It must stay mapped until
    /// remove(), which deregisters it.
    Result<> add(const std::byte* data, std::size_t bytes);
    void remove(const std::byte* data, std::size_t bytes);
    /// Deregisters all memory, even memory in use, because the library is about to close the object
    /// that it is registered with. Later uses register nothing, and a Registered that still exists
    /// does nothing when it is destroyed.
    void close() { cache_.reset(); }

private:
    friend class Registered;
    std::unique_ptr<MemoryMonitor> monitor_;
    std::unique_ptr<RegistrationCache> cache_;  // nullptr: no registrar, or closed
};

/// Page-aligned memory of our own for messages, registered while it lives.
class RegisteredBlock {
public:
    static Result<RegisteredBlock> make(LibraryMemory& memory, std::size_t bytes);
    RegisteredBlock(RegisteredBlock&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          bytes_(other.bytes_),
          registered_(std::move(other.registered_)) {}
    RegisteredBlock& operator=(RegisteredBlock&&) = delete;
    ~RegisteredBlock();

    std::byte* data() const { return data_; }
    /// As Registered::handle().
    void* handle() const { return registered_.handle(); }

private:
    RegisteredBlock(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    std::byte* data_;
    std::size_t bytes_;
    Registered registered_;
};

}  // namespace tutti
