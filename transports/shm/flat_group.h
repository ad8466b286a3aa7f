// One rank's membership of a flat group, and what its operations share.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/intrinsic.h"
#include "transport/mapped_channel.h"
#include "transports/shm/flat_memory.h"

namespace tutti {
class Reactor;
}

namespace tutti::shm {

/// Where a rank stands on one stream. Touched only by the thread that drives the stream.
struct FlatStream {
    uint64_t started = 0;          // number of the newest operation, from 1; 0 again in a new epoch
    uint64_t seen = 0;             // the newest whose slots of all peers were here, with equal tags
    std::array<Tag, 2> tags{};     // of the newest two operations, by number
    std::size_t backed_bytes = 0;  // of each of this rank's payload areas
};

struct FlatMember {
    FlatMember(Rank own_rank, Rank group_size, uint32_t stream_count)
        : rank(own_rank),
          size(group_size),
          layout(group_size, stream_count),
          streams(stream_count) {}
    ~FlatMember();
    FlatMember(const FlatMember&) = delete;

    /// Wakes this rank's sleepers by draining its doorbell whenever the reactor polls.
    Result<> watch(Reactor& reactor);
    /// Makes sure that this rank's payload areas of a stream can take messages of that size.
    Result<> back(uint32_t stream, std::size_t bytes);

    Rank rank;
    Rank size;
    FlatLayout layout;
    std::shared_ptr<std::byte> memory;
    UniqueFd memory_fd;
    std::vector<std::shared_ptr<const Doorbell>> doorbells;  // by rank, this rank's own too
    std::vector<FlatStream> streams;

private:
    Reactor* reactor_ = nullptr;
};

std::unique_ptr<Operation> make_flat_operation(std::shared_ptr<FlatMember> member,
                                               const IntrinsicShape& shape);

class FlatGroup final : public IntrinsicGroup {
public:
    explicit FlatGroup(std::shared_ptr<FlatMember> member) : member_(std::move(member)) {}
    bool serves(Collective collective, std::size_t bytes) const override;
    Result<std::unique_ptr<Operation>> bind(const IntrinsicShape& shape) override;
    void reset() override;

private:
    std::shared_ptr<FlatMember> member_;
};

}  // namespace tutti::shm
