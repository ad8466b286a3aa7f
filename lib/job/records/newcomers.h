// The meeting of a running job with processes that join it, in the store. A newcomer queues with a
// ticket. The root of the members writes a seat for each ticket that it takes from the queue.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "job/records/rank_owner.h"
#include "rendezvous/store.h"

namespace tutti {

/// At most so many newcomers wait at the same time, or join at once.
inline constexpr Rank most_newcomers = 1024;

/// A store that takes longer for a request is on a silent host.
inline constexpr int64_t store_answer_ms = 5000;

/// A newcomer's place in the communicator that it joins.
struct NewcomerSeat {
    std::string generation;  // the name under which all its ranks meet
    Rank rank = 0, size = 0;
    Rank members = 0;     // the ranks below it are not new
    std::string refusal;  // not empty: the newcomer gets no seat

    std::string encode() const;
    /// nullopt: it is malformed.
    static std::optional<NewcomerSeat> decode(std::string_view text);
};

/// A newcomer's entry in the queue.
struct Ticket {
    std::string id;  // its own: no other ticket ever has it
    uint32_t format = 0;
    RankOwner owner;

    std::string encode() const;
    /// The id of any format; the rest only if `format` is this version's.
    static std::optional<Ticket> decode(const std::string& text);
};

/// A process that waits for a seat. It leaves the queue in the destructor.
class Newcomer {
public:
    Newcomer(Store& store, RankOwner self) : store_(store), self_(std::move(self)) {}
    ~Newcomer();
    Newcomer(const Newcomer&) = delete;

    /// Queues, and waits for a seat. timeout: no member has asked for this newcomer.
    Result<NewcomerSeat> take_seat(Deadline deadline);

private:
    Result<> queue(Deadline deadline);
    Result<bool> is_queued(Deadline deadline) const;
    std::string seat_key() const;

    Store& store_;
    const RankOwner self_;
    Ticket ticket_;
    std::string slot_;  // empty: not queued
    std::unique_ptr<Will> will_;
};

/// The queue, for the root of the members.
class NewcomerQueue {
public:
    NewcomerQueue(Store& store, RankOwner self) : store_(store), self_(std::move(self)) {}

    struct QueuedTicket {
        std::string slot;
        Ticket ticket;
    };
    /// The first of those that wait. Removes tickets of processes that have ended.
    Result<std::vector<QueuedTicket>> find_waiting(std::size_t most, Deadline deadline);
    /// Their ranks follow the members' in this order. They leave the queue by themselves.
    Result<> seat(const std::vector<QueuedTicket>& entries, const std::string& generation,
                  Rank members, Deadline deadline);

private:
    Result<bool> has_ended(const Ticket& ticket, Deadline deadline) const;
    Result<> remove(const QueuedTicket& entry, Deadline deadline);

    Store& store_;
    const RankOwner self_;
};

}  // namespace tutti
