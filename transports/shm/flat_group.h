// One rank's membership of a flat group: the state that its operations share.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/flat/flat_operation.h"
#include "transport/mapped/mapped_channel.h"
#include "transports/shm/flat_memory.h"
#include "transports/shm/neighbours.h"

namespace tutti::shm {

/// Groups that their leader has left. The arena reuses their memory once each member has left, or
/// its process has ended. Any thread.
class ClosedGroups {
public:
    ClosedGroups(std::shared_ptr<Arena> arena, std::shared_ptr<Neighbours> neighbours)
        : arena_(std::move(arena)), neighbours_(std::move(neighbours)) {}
    /// members: their ranks in the job.
    void add(const Arena::Block& block, std::vector<Rank> members);
    void reuse();
    Arena& arena() const { return *arena_; }

private:
    struct Closed {
        Arena::Block block;
        std::vector<Rank> members;
    };
    bool is_used(const Closed& group) const;

    const std::shared_ptr<Arena> arena_;
    const std::shared_ptr<Neighbours> neighbours_;
    std::mutex mutex_;
    std::vector<Closed> closed_;
};

struct FlatMember {
    FlatMember(Rank own_rank, Rank group_size, uint32_t stream_count);
    /// Tells the leader that this member no longer uses the memory.
    ~FlatMember();
    FlatMember(const FlatMember&) = delete;

    /// Backs this rank's payload areas of a stream for messages of that size.
    Result<> prepare(uint32_t stream, std::size_t bytes);

    static constexpr FlatLimits limits{
        .most_ranks = flat_max_ranks, .most_bytes = flat_slot_bytes, .broadcasts = true};
    const Rank rank;
    const Rank size;
    const FlatLayout layout;
    std::shared_ptr<const SegmentTable> segments;  // of the leader's process
    SegmentPlace place;
    std::byte* memory = nullptr;
    // Only in the leader; nullptr in other ranks.
    std::shared_ptr<ClosedGroups> closed;
    std::vector<Rank> members;                               // their ranks in the job
    std::vector<std::shared_ptr<const Doorbell>> doorbells;  // by rank; this rank's own is not used
    std::vector<FlatStream> streams;

private:
    const int process_;
    std::vector<std::size_t> backed_bytes_;  // by stream: backed bytes of each of this rank's
                                             // payload areas
};

std::unique_ptr<IntrinsicGroup> make_flat_group(std::shared_ptr<FlatMember> member);

}  // namespace tutti::shm
