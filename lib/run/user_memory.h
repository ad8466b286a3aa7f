// The program's memory that is registered with the transports before its use, so that no operation
// has to register it with a network card. It is allocated here or by the program.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "transport/transport.h"

namespace tutti {

/// Ends a mapping.
struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* data) const;
};

/// One communicator's memory. Any thread may call any function.
class UserMemory {
public:
    UserMemory(Rank rank, std::span<const std::unique_ptr<Transport>> transports)
        : rank_(rank), transports_(transports) {}
    ~UserMemory() { clear(); }
    UserMemory(const UserMemory&) = delete;

    /// Page-aligned and zeroed; of huge pages if it is large and the system has them.
    Result<std::byte*> allocate(std::size_t bytes);
    /// Frees memory that allocate() returned.
    Result<> free(std::byte* data);

    Result<> add(std::byte* data, std::size_t bytes);
    /// Deregisters memory that add() registered, by its start.
    Result<> remove(std::byte* data);

    /// Deregisters and frees all of it.
    void clear();

private:
    struct KnownRange {
        std::size_t bytes = 0;
        std::unique_ptr<std::byte, Unmap> owned;  // null: the program's own memory
    };
    using Ranges = std::map<std::byte*, KnownRange>;

    Result<> register_range(std::byte* data, std::size_t bytes);
    void forget(std::byte* data, std::size_t bytes, std::size_t transports);
    Result<> take_back(std::byte* data, bool owned);

    const Rank rank_;
    const std::span<const std::unique_ptr<Transport>> transports_;
    std::mutex mutex_;
    Ranges ranges_;
};

}  // namespace tutti
