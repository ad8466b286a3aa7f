// One rank's membership of a flat group, and what its operations share.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/intrinsic.h"
#include "transport/mapped/mapped_channel.h"
#include "transports/shm/flat_memory.h"

namespace tutti::shm {

/// Where a rank stands on one stream. Touched only by the thread that drives the stream.
struct FlatStream {
    uint64_t started = 0;          // number of the newest operation, from 1; 0 again in a new epoch
    uint64_t seen = 0;             // the newest whose slots of all peers were here, with equal tags
    std::array<Tag, 2> tags{};     // of the newest two operations, by number
    std::size_t backed_bytes = 0;  // of each of this rank's payload areas
};

/// Groups that their leader has left. Their memory is used again when all members have. Any thread.
class ClosedGroups {
public:
    explicit ClosedGroups(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}
    void add(const Arena::Block& block, Rank size);
    void reuse();
    Arena& arena() const { return *arena_; }

private:
    struct Closed {
        Arena::Block block;
        Rank size = 0;
    };
    const std::shared_ptr<Arena> arena_;
    std::mutex mutex_;
    std::vector<Closed> closed_;
};

struct FlatMember {
    FlatMember(Rank own_rank, Rank group_size, uint32_t stream_count);
    /// Tells the leader that this member is through with the memory.
    ~FlatMember();
    FlatMember(const FlatMember&) = delete;

    /// Makes sure that this rank's payload areas of a stream can take messages of that size.
    Result<> back(uint32_t stream, std::size_t bytes);

    const Rank rank;
    const Rank size;
    const FlatLayout layout;
    std::shared_ptr<const SegmentTable> segments;  // the leader's
    SegmentPlace place;
    std::byte* memory = nullptr;
    std::shared_ptr<ClosedGroups> closed;                    // the leader's own; null elsewhere
    std::vector<std::shared_ptr<const Doorbell>> doorbells;  // by rank; this rank's own is not used
    std::vector<FlatStream> streams;

private:
    const int process_;
};

std::unique_ptr<Operation> make_flat_operation(std::shared_ptr<FlatMember> member,
                                               const IntrinsicShape& shape);

class FlatGroup final : public IntrinsicGroup {
public:
    explicit FlatGroup(std::shared_ptr<FlatMember> member) : member_(std::move(member)) {}
    bool serves(Collective collective, std::size_t bytes) const override;
    std::size_t most_bytes() const override { return flat_slot_bytes; }
    bool sends() const override { return false; }
    Result<std::unique_ptr<Operation>> bind(const IntrinsicShape& shape) override;
    void reset() override;

private:
    std::shared_ptr<FlatMember> member_;
};

}  // namespace tutti::shm
