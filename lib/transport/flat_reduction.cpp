#include "transport/flat_reduction.h"

#include <algorithm>

namespace tutti {
namespace {

// Several contributions are added block by block, so that the accumulator stays in the nearest
// cache.
constexpr std::size_t block_bytes = 8192;

}  // namespace

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
