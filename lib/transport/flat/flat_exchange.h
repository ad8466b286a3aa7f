// The limits of a flat exchange, and the sum of the contributions. Every rank adds them in rank
// order, so that all ranks compute the same bits.
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

/// The schedule algorithms whose results a flat exchange must equal; "" for a collective that no
/// flat exchange does.
std::string_view flat_reference(Collective collective);

/// The groups and calls that one transport's flat exchange serves. All serve allreduces and
/// barriers.
struct FlatLimits {
    Rank least_ranks = 1, most_ranks = 1;
    std::size_t most_bytes = 0;  // of a contribution
    bool broadcasts = false;
    bool sends = false;  // as IntrinsicGroup::sends()
};
bool flat_serves(const FlatLimits& limits, Collective collective);

/// unsupported or invalid: these ranks cannot be a group.
Result<> check_flat_group(const GroupRequest& group, const FlatLimits& limits);

/// The bytes of a contribution to a call, or the reason why the group cannot do the call. A
/// barrier's contribution has none.
Result<std::size_t> flat_contribution_bytes(const IntrinsicGroup& group,
                                            const IntrinsicShape& shape);

class FlatReduction {
public:
    /// For an allreduce. A barrier has no elements.
    FlatReduction(const IntrinsicShape& shape, Rank size);

    bool empty() const { return count_ == 0; }
    /// contributions: by rank. out may be one of them: each block of it is written last.
    void run(std::span<const std::byte* const> contributions, void* out);

private:
    void reduce_many(std::span<const std::byte* const> contributions, std::byte* out);

    const std::size_t raw_bytes_, final_bytes_;
    const int32_t divisor_;
    const UserFunction function_;
    std::size_t count_ = 0;
    std::size_t block_count_ = 0;
    ReduceFn only_ = nullptr;  // for one or two ranks
    ReduceFn first_ = nullptr;
    ReduceFn middle_ = nullptr;
    ReduceFn last_ = nullptr;
    std::vector<std::byte> partial_;
};

}  // namespace tutti
