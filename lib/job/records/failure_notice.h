// The failure of a job's start, as one of its ranks publishes it in the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "job/records/peer_directory.h"

namespace tutti {

/// For ranks that come after the others have given up, when no other rank is left to tell them. The
/// first published failure stays, because it is the cause of later ones. A notice from long before
/// this rank came is about an earlier job of the same name.
class FailureNotice {
public:
    FailureNotice(const std::string& generation, Rank rank, Rank size)
        : key_(generation + "/failed"), rank_(rank), size_(size) {}

    /// A directory store forgets the notice when its writer ends, so the writer stays a moment.
    void publish(Store& store, const Error& failure) const;
    /// The same for a writer that keeps the store open. True: this is the first notice.
    bool post(Store& store, const Error& failure) const;
    /// Waits for the store as long as a busy or distant one takes to answer.
    std::optional<Error> published(Store& store) const;
    /// Has the store publish that this process ended, if it does before withdraw_will(). False: the
    /// store does not notice that.
    Result<bool> publish_with_process_end(PeerDirectory& directory, Deadline deadline) const;

    /// Decodes a notice; nullopt if it is not about this job.
    std::optional<Error> decode(std::string_view text) const;

private:
    const std::string key_;
    const Rank rank_, size_;
    const int64_t started_s_ = wall_clock_s();
};

}  // namespace tutti
