#include "check.h"

namespace bench {
namespace {

// Limits the memory of the cached patterns. Each pattern has up to half a megabyte, and each rank's
// input has its own.
constexpr std::size_t max_patterns = 64;

}  // namespace

void Checker::fill(std::byte* memory, const Contents& contents, const Call& call) {
    for (const ContentRange& range : contents) {
        const std::size_t bytes = range.count * tutti_dtype_size(call.dtype);
        bench::fill({memory, bytes}, pattern_of(range, call), range.first);
        memory += bytes;
    }
}

uint64_t Checker::count_wrong(const std::byte* memory, const Contents& contents, const Call& call) {
    uint64_t wrong = 0;
    for (const ContentRange& range : contents) {
        const std::size_t bytes = range.count * tutti_dtype_size(call.dtype);
        wrong += bench::count_wrong({memory, bytes}, pattern_of(range, call), range.first);
        memory += bytes;
    }
    return wrong;
}

const Pattern& Checker::pattern_of(const ContentRange& range, const Call& call) {
    if (dtype_ != call.dtype || op_ != call.op || patterns_.size() >= max_patterns)
        patterns_.clear();
    dtype_ = call.dtype;
    op_ = call.op;
    const auto [at, is_new] = patterns_.try_emplace({range.source, range.ranks});
    if (is_new) {
        at->second = range.source == Source::poison ? poison_pattern(call.dtype)
                     : range.source == Source::input
                         ? input_pattern(call.dtype, call.op, range.ranks, ranks_)
                         : expected_pattern(call.dtype, call.op, range.ranks);
    }
    return at->second;
}

}  // namespace bench
