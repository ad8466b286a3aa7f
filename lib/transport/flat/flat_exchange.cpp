#include "transport/flat/flat_exchange.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Several contributions are added block by block, so that the accumulator stays in the nearest
// cache.
constexpr std::size_t block_bytes = 8192;

}  // namespace

std::string_view flat_reference(Collective collective) {
    switch (collective) {
        case Collective::allreduce:
            return "ring";
        case Collective::broadcast:
            return "binomial";
        case Collective::barrier:
            return "dissemination";
        default:
            return "";
    }
}

bool flat_serves(const FlatLimits& limits, Collective collective) {
    if (collective == Collective::broadcast) return limits.broadcasts;
    return !flat_reference(collective).empty();
}

Result<> check_flat_group(const GroupRequest& group, const FlatLimits& limits) {
    if (group.size < limits.least_ranks || group.size > limits.most_ranks)
        return fail(Code::unsupported, "flat: {} ranks are not supported", group.size)
            .advice("use {} to {} ranks", limits.least_ranks, limits.most_ranks);
    if (group.streams < 1 || group.streams > flat_max_streams)
        return fail(Code::unsupported, "flat: {} rings are not supported", group.streams)
            .advice("set TUTTI_NRINGS to 1 to {}", flat_max_streams);
    if (group.rank < 0 || group.rank >= group.size)
        return fail(Code::invalid, "flat: rank {} is out of range", group.rank)
            .advice("give a rank from 0 to {}", group.size - 1);
    if (!group.members.empty() && std::cmp_not_equal(group.members.size(), group.size))
        return fail(Code::invalid, "flat: {} members are listed for {} ranks", group.members.size(),
                    group.size)
            .advice("list every rank once");
    return {};
}

Result<std::size_t> flat_contribution_bytes(const IntrinsicGroup& group,
                                            const IntrinsicShape& shape) {
    const std::size_t element_bytes = shape.reducer.bytes(Width::raw);
    if (shape.count > group.most_bytes() / element_bytes)
        return fail(Code::unsupported,
                    "flat: {} elements of {} bytes are over the limit of {} bytes", shape.count,
                    element_bytes, group.most_bytes())
            .advice("use another algorithm, or at most {} bytes", group.most_bytes());
    const std::size_t bytes = shape.count * element_bytes;
    if (!group.serves(shape.collective, bytes))
        return fail(Code::unsupported, "flat: {} is not supported",
                    collective_name(shape.collective))
            .advice("use another algorithm");
    return shape.collective == Collective::barrier ? 0 : bytes;
}

FlatReduction::FlatReduction(const IntrinsicShape& shape, Rank size)
    : raw_bytes_(shape.reducer.bytes(Width::raw)),
      final_bytes_(shape.reducer.bytes(Width::final)),
      divisor_(shape.divisor),
      function_(shape.reducer.function()) {
    if (shape.collective == Collective::barrier || shape.count == 0) return;
    count_ = shape.count;
    const Reducer& reducer = shape.reducer;
    if (size == 1) {
        only_ = reducer.move(Width::raw, Width::final, false);
    } else if (size == 2) {
        only_ = reducer.reduce(Width::raw, Width::raw, Width::final, false);
    } else {
        first_ = reducer.reduce(Width::raw, Width::raw, Width::partial, false);
        middle_ = reducer.reduce(Width::partial, Width::raw, Width::partial, false);
        last_ = reducer.reduce(Width::partial, Width::raw, Width::final, false);
        const std::size_t partial_bytes = reducer.bytes(Width::partial);
        block_count_ = std::min(count_, std::max<std::size_t>(1, block_bytes / partial_bytes));
        partial_.resize(block_count_ * partial_bytes);
    }
}

void FlatReduction::run(std::span<const std::byte* const> contributions, void* out) {
    if (contributions.size() > 2) return reduce_many(contributions, static_cast<std::byte*>(out));
    only_({.dst = out,
           .a = contributions.front(),
           .b = contributions.size() == 2 ? contributions.back() : nullptr,
           .count = count_,
           .divisor = divisor_,
           .user = &function_});
}

void FlatReduction::reduce_many(std::span<const std::byte* const> contributions, std::byte* out) {
    for (std::size_t at = 0; at < count_; at += block_count_) {
        const auto contribution = [&](std::size_t rank) {
            return contributions[rank] + at * raw_bytes_;
        };
        ReduceArgs args{.dst = partial_.data(),
                        .a = contribution(0),
                        .b = contribution(1),
                        .count = std::min(block_count_, count_ - at),
                        .divisor = divisor_,
                        .user = &function_};
        first_(args);
        args.a = partial_.data();
        const std::size_t last = contributions.size() - 1;
        for (std::size_t rank = 2; rank < last; ++rank) {
            args.b = contribution(rank);
            middle_(args);
        }
        args.dst = out + at * final_bytes_;
        args.b = contribution(last);
        last_(args);
    }
}

}  // namespace tutti
