// Looks, while this rank joins, for reasons why other ranks cannot join.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/records/claim_watch.h"
#include "job/records/failure_notice.h"
#include "job/records/peer_directory.h"

namespace tutti {

/// Such a reason is in the store (a notice, a claim whose process has ended), in what the store
/// itself finds, or in this process (descriptors). Each look asks the store, so looks become rarer.
/// For the thread that joins.
class JoinWatch {
public:
    JoinWatch(Rank rank, Rank size, std::string machine, PeerDirectory& directory,
              const FailureNotice& notice)
        : rank_(rank),
          size_(size),
          machine_(std::move(machine)),
          directory_(directory),
          notice_(notice) {}

    /// Called when this rank has claimed its number. If its process is killed while it joins, the
    /// store tells the other ranks; if the store cannot, the ranks watch each other's claims.
    void begin(Deadline deadline);
    /// Checks for such a reason, if it is time for the next look. has_parent: the parent knows this
    /// rank, and tells it of any failure.
    std::optional<Error> trouble(bool has_parent, int64_t now_ns);

private:
    const Rank rank_, size_;
    const std::string machine_;
    PeerDirectory& directory_;
    const FailureNotice& notice_;
    std::optional<ClaimWatch> claims_;  // set if the store does not notice the end of a process
    int64_t look_ns_ = 0, look_pause_ns_ = 0;  // when trouble() looks again
};

}  // namespace tutti
