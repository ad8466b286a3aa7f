#include "plan/call.h"

#include <limits>
#include <numeric>

#include "base/hash.h"

namespace tutti {
BlockLayout to_blocks(const BlockList& list) {
    BlockLayout blocks;
    blocks.counts.assign(list.counts.begin(), list.counts.end());
    blocks.displacements.assign(list.displacements.begin(), list.displacements.end());
    if (!blocks.displacements.empty()) return blocks;
    blocks.displacements.resize(blocks.counts.size());
    std::exclusive_scan(blocks.counts.begin(), blocks.counts.end(), blocks.displacements.begin(),
                        std::size_t{0});
    return blocks;
}

Result<> check_lengths(const Call& call, Rank ranks) {
    const std::size_t most_elements =
        std::numeric_limits<std::ptrdiff_t>::max() / dtype_bytes(call.dtype);
    const auto too_much = [&](std::size_t elements) {
        return fail(Code::invalid, "{} elements of {} are more bytes than memory can hold",
                    elements, dtype_name(call.dtype))
            .advice("give the count in elements, not more than the buffer holds");
    };
    const bool per_block = traits_of(call.collective).cut != Cut::whole && !call.uneven;
    if (call.count > most_elements / (per_block ? static_cast<std::size_t>(ranks) : 1))
        return too_much(call.count);
    for (const BlockList* list : {&call.input, &call.output}) {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < list->counts.size(); ++i) {
            const std::size_t n = list->counts[i];
            if (n > most_elements - sum) return too_much(n);
            sum += n;
            if (!list->displacements.empty() && list->displacements[i] > most_elements - n)
                return fail(Code::invalid,
                            "block {} of {} elements at displacement {} is past the end of memory",
                            i, n, list->displacements[i])
                    .advice("give displacements in elements that lie within the buffer");
        }
    }
    return {};
}

std::size_t total_elements(const Call& call, Rank ranks) {
    if (traits_of(call.collective).cut == Cut::whole) return call.count;
    if (!call.uneven) return call.count * static_cast<std::size_t>(ranks);
    std::size_t most = call.count;
    for (const BlockList* list : {&call.input, &call.output})
        most = std::max(most,
                        std::accumulate(list->counts.begin(), list->counts.end(), std::size_t{0}));
    return most;
}

CallBlocks blocks_of(const Call& call) {
    CallBlocks blocks;
    if (!call.uneven) return blocks;
    const BlockLayout own{{call.count}, {0}};
    blocks.input = call.input.counts.empty() ? own : to_blocks(call.input);
    blocks.output = call.output.counts.empty() ? own : to_blocks(call.output);
    switch (call.collective) {
        case Collective::allgather:
            blocks.input = blocks.output;
            break;
        case Collective::reduce_scatter:
            blocks.output = blocks.input;
            break;
        default:  // gatherv, scatterv, alltoallv: no rank knows the lengths between two others
            blocks.tag_by_block = true;
    }
    return blocks;
}

uint64_t fingerprint(const Call& call) {
    const bool named = call.name != CallName();
    if (!call.uneven && !named) return 0;
    uint64_t hash = hash_basis;
    if (named) hash = mix_hash(mix_hash(hash, call.name.head), call.name.tail);
    if (!call.uneven) return hash;
    const bool all_know =
        call.collective == Collective::allgather || call.collective == Collective::reduce_scatter;
    if (all_know)
        for (const BlockList* list : {&call.input, &call.output})
            for (const std::size_t n : list->counts) hash = mix_hash(hash, n);
    return hash;
}

}  // namespace tutti
