// The records of a job's ranks.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "job/records/peer_record.h"
#include "job/records/rank_owner.h"
#include "rendezvous/store.h"

namespace tutti {

/// Holds this rank's entries in the store (the claim on its number, its record, its will) and the
/// records of other ranks: those that the ranks exchanged when they joined, and those that this
/// rank has looked up in the store. Pointers to these records are valid as long as the directory.
/// Any thread may look ranks up; the other functions are for the thread that joins or leaves.
class PeerDirectory {
public:
    PeerDirectory(std::string generation, Rank rank, Rank size)
        : generation_(std::move(generation)), rank_(rank), size_(size) {}

    void enter(std::shared_ptr<Store> store) { store_ = std::move(store); }
    bool entered() const { return store_ != nullptr; }
    Store& store() const { return *store_; }
    std::shared_ptr<Store> shared_store() const { return store_; }
    /// Lets go of the store.
    void close() { store_.reset(); }

    /// Claims this rank's number. `invalid`: another process has it.
    Result<> claim(const RankOwner& self, const std::string& job, Deadline deadline);
    std::optional<std::string> claim_of(Rank rank, Deadline deadline) const;
    Result<> publish(const PeerRecord& own, Deadline deadline);
    bool published() const { return published_; }
    /// As Store::set_will(). False: the store does not notice the end of a process.
    Result<bool> set_will(const std::string& key, std::string_view value, Deadline deadline);
    void withdraw_will() { will_.reset(); }
    /// Takes back the claim and the record, if this rank has made the claim.
    void withdraw_records(Deadline deadline);

    std::string key(Rank rank) const { return key(generation_, rank); }
    static std::string key(const std::string& generation, Rank rank);
    /// Keeps a record that has come without the store. From then on, looking that rank up needs no
    /// store.
    Result<> add(Rank rank, std::string_view text);
    /// Waits for the rank's record to be in the store, unless it is known.
    Result<const PeerRecord*> find(Rank rank, Deadline deadline);
    /// The same without the wait, for a rank that may have left and removed its record.
    Result<const PeerRecord*> find_if_there(Rank rank, Deadline deadline);
    /// The error that names the ranks without a record in the store. It names no rank about which
    /// the store was not asked.
    Error missing_error(int64_t waited_ms) const;

private:
    std::string claim_key(Rank rank) const { return key(rank) + "/owner"; }
    const PeerRecord* known(Rank rank);
    Result<const PeerRecord*> keep(Rank rank, std::string_view text, std::string_view from);

    const std::string generation_;
    const Rank rank_, size_;
    std::shared_ptr<Store> store_;
    std::unique_ptr<Will> will_;
    bool claimed_ = false, published_ = false;  // this rank's number; its record
    std::mutex mutex_;                          // guards peers_; nothing is called with it
    std::map<Rank, PeerRecord> peers_;
};

}  // namespace tutti
