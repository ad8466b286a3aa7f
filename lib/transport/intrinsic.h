// Whole collectives done at once: the flat shared-memory exchange, a GPU library's. An intrinsic
// names the schedule it must agree with, and a differential test holds it to that.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/collective.h"
#include "base/result.h"
#include "reduce/reduce.h"
#include "transport/operation.h"

namespace tutti {

/// A rank's address, as that rank published it in the store.
struct PeerAddress {
    Rank rank = nobody;
    std::string host_id;  // equal ids: probably one host
    std::string address;  // the transport's own words
};

/// The call an intrinsic is asked to bind.
struct IntrinsicShape {
    Collective collective = Collective::allreduce;
    std::size_t count = 0;
    Reducer reducer = Reducer::mover(1);
    Rank root = 0;
    uint32_t stream = 0;
    int32_t divisor = 1;  // avg: the number of contributions

    // For device libraries only, which count in elements of the dtype.
    Dtype dtype = Dtype::uint8;
    Op op = Op::sum;                                 // built in; sum where there is a factor
    std::optional<std::array<std::byte, 8>> factor;  // a pre-multiplied sum's, of the dtype
    struct UnevenBlocks {
        std::vector<std::size_t> counts, displacements;
    };
    UnevenBlocks input, output;  // where blocks have different lengths, else empty
};

/// The communicator an intrinsic serves. Where there is something to make, rank 0 does, and the
/// others ask it.
struct GroupRequest {
    uint32_t comm = 0;
    Rank rank = 0;
    Rank size = 1;
    uint32_t streams = 1;
    std::vector<Rank> members;  // their ranks in the job, by rank; empty: the same
    /// Looks up a rank of the job. May wait for that rank to publish its address.
    std::function<Result<PeerAddress>(Rank)> find;

    Rank in_job(Rank member) const {
        return members.empty() ? member : members[static_cast<std::size_t>(member)];
    }
};

/// This rank's membership of one communicator's group.
class IntrinsicGroup {
public:
    virtual ~IntrinsicGroup() = default;
    virtual bool serves(Collective collective, std::size_t bytes) const = 0;
    /// The largest message that any collective takes.
    virtual std::size_t most_bytes() const = 0;
    /// Every contribution is a message to each of the others; else all read it where it lies.
    virtual bool sends() const = 0;
    virtual Result<std::unique_ptr<Operation>> bind(const IntrinsicShape& shape) = 0;
    /// All ranks have left the failed epoch's operations and none has begun a new one: forget them.
    virtual void reset() = 0;
};

class IntrinsicProvider {
public:
    virtual ~IntrinsicProvider() = default;
    virtual std::string_view name() const = 0;
    /// The schedule algorithm whose results it must equal; "": it has no such collective.
    virtual std::string_view reference(Collective collective) const = 0;
    /// The size of the largest group.
    virtual Rank most_ranks() const = 0;
    /// May block until rank 0 has answered. unsupported: do without.
    virtual Result<std::unique_ptr<IntrinsicGroup>> join(const GroupRequest& group,
                                                         Deadline deadline) = 0;
};

}  // namespace tutti
