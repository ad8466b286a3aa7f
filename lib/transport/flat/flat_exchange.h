// What flat exchanges have in common, however contributions travel: whom and what they serve, and
// the sum of what has come, in rank order, so that all ranks compute the same bits.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "reduce/reduce.h"
#include "transport/intrinsic.h"

namespace tutti {

inline constexpr std::string_view flat_name = "flat";
inline constexpr std::string_view flat_summary =
    "every rank reads all contributions at once: small messages, where the transport has it";
inline constexpr uint32_t flat_max_streams = 64;

/// The schedule algorithms whose results they must equal; "" for what no flat exchange does.
std::string_view flat_reference(Collective collective);

/// Whether a group can be one: of so many ranks at least, and at most.
Result<> check_flat_group(const GroupRequest& group, Rank least_ranks, Rank most_ranks);

/// The bytes of a contribution to a call, or why the group cannot do it.
Result<std::size_t> flat_contribution_bytes(const IntrinsicGroup& group,
                                            const IntrinsicShape& shape);

class FlatReduction {
public:
    /// Of an allreduce. A barrier's is of nothing.
    FlatReduction(const IntrinsicShape& shape, Rank size);

    bool empty() const { return count_ == 0; }
    /// By rank; out may be one of them: it is written last, block by block.
    void run(std::span<const std::byte* const> contributions, void* out);

private:
    void reduce_many(std::span<const std::byte* const> contributions, std::byte* out);

    const std::size_t raw_bytes_, final_bytes_;
    const int32_t divisor_;
    const UserFunction function_;
    std::size_t count_ = 0;
    std::size_t block_count_ = 0;
    ReduceFn only_ = nullptr;  // one or two ranks
    ReduceFn first_ = nullptr;
    ReduceFn middle_ = nullptr;
    ReduceFn last_ = nullptr;
    std::vector<std::byte> partial_;
};

}  // namespace tutti
