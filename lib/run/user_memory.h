// The program's memory that is registered with the transports before its use, so that no operation
// has to register it with a network card. It is allocated here or by the program. The registrations
// end with the communicator; allocated memory stays until the program frees it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "transport/transport.h"

namespace tutti {

/// One communicator's memory. Any thread may call any function.
class UserMemory {
public:
    UserMemory(Rank rank, std::span<const std::unique_ptr<Transport>> transports)
        : rank_(rank), transports_(transports) {}
    ~UserMemory() { clear(); }
    UserMemory(const UserMemory&) = delete;

    /// Page-aligned and zeroed; of huge pages if it is large and the system has them.
    Result<std::byte*> allocate(std::size_t bytes);
    /// Frees memory that allocate() of this object returned.
    Result<> free(std::byte* data);
    /// Frees memory that allocate() of any object of this process returned, also of one that was
    /// destroyed.
    static Result<> free_of_any(std::byte* data);

    Result<> add(std::byte* data, std::size_t bytes);
    /// Deregisters memory that add() registered, by its start.
    Result<> remove(std::byte* data);

    struct Bytes {
        std::size_t allocated = 0, registered = 0;
    };
    /// The size of all memory of this object.
    Bytes bytes() const;

    /// Deregisters all of it. Allocated memory stays valid; free_of_any() frees it.
    void clear();

private:
    struct KnownRange {
        std::size_t bytes = 0;
        bool allocated = false;  // by allocate(); else by the program
    };
    using Ranges = std::map<std::byte*, KnownRange>;

    Result<> register_range(std::byte* data, std::size_t bytes);
    void forget(std::byte* data, std::size_t bytes, std::size_t transports);
    bool take_back(std::byte* data, bool allocated);
    static Result<> free_block(std::byte* data, const UserMemory* named);

    const Rank rank_;
    const std::span<const std::unique_ptr<Transport>> transports_;
    mutable std::mutex mutex_;
    Ranges ranges_;
};

}  // namespace tutti
