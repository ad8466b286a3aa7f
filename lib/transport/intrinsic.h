// Collectives that a transport does as a whole: the flat shared-memory exchange, a GPU library's
// collectives. An intrinsic names the schedule with which its results must agree, and a
// differential test checks that.
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
    std::string host_id;  // equal ids: probably the same host
    std::string address;  // in the transport's own format
};

/// The call an intrinsic is asked to bind.
struct IntrinsicShape {
    Collective collective = Collective::allreduce;
    std::size_t count = 0;
    Reducer reducer = Reducer::mover(1);
    Rank root = 0;
    uint32_t stream = 0;
    int32_t divisor = 1;  // avg: the number of contributions

    // Only device libraries use these; they count in elements of the dtype.
    Dtype dtype = Dtype::uint8;
    Op op = Op::sum;                                 // a built-in operator; sum if there is a
                                                     // factor
    std::optional<std::array<std::byte, 8>> factor;  // of a pre-multiplied sum, in the dtype
    struct UnevenBlocks {
        std::vector<std::size_t> counts, displacements;
    };
    UnevenBlocks input, output;  // if blocks have different lengths, else empty
};

/// The communicator that an intrinsic serves. If the group needs a shared object, rank 0 makes it,
/// and the other ranks ask rank 0 for it.
struct GroupRequest {
    uint32_t comm = 0;
    Rank rank = 0;
    Rank size = 1;
    uint32_t streams = 1;
    std::vector<Rank> members;  // the members' ranks in the job, by rank; empty: equal to their
                                // ranks
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
    /// The largest message that any of the collectives takes.
    virtual std::size_t most_bytes() const = 0;
    /// True: a rank sends each contribution as a message to every other rank. False: the other
    /// ranks read it in place.
    virtual bool sends() const = 0;
    virtual Result<std::unique_ptr<Operation>> bind(const IntrinsicShape& shape) = 0;
    /// All ranks have ended the failed epoch's operations, and none has begun one of the new epoch:
    /// drops the old state.
    virtual void reset() = 0;
};

class IntrinsicProvider {
public:
    virtual ~IntrinsicProvider() = default;
    virtual std::string_view name() const = 0;
    /// The schedule algorithm whose results the intrinsic must equal; "": it does not do that
    /// collective.
    virtual std::string_view reference(Collective collective) const = 0;
    /// The size of the largest group.
    virtual Rank most_ranks() const = 0;
    /// May block until rank 0 has answered. unsupported: the planner does without the intrinsic.
    virtual Result<std::unique_ptr<IntrinsicGroup>> join(const GroupRequest& group,
                                                         Deadline deadline) = 0;
};

}  // namespace tutti
