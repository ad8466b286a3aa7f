#include "plan/buffer_range.h"

#include <algorithm>

namespace tutti {

BufferRange range_of(const Call& call, Rank rank, Rank ranks, Space space) {
    const auto me = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
    const bool in = space == Space::input, root = rank == call.root;
    BufferRange e;
    switch (call.collective) {
        case Collective::broadcast:
            e.used = !in || root;
            break;
        case Collective::reduce:
            e.used = in || root;
            break;
        case Collective::exscan:
            e.used = in || me > 0;
            break;
        case Collective::gather:
            e.used = in || root;
            e.row = !in;
            break;
        case Collective::scatter:
            e.used = !in || root;
            e.row = in;
            break;
        case Collective::allgather:
            e.row = !in;
            break;
        case Collective::reduce_scatter:
            e.row = in;
            break;
        case Collective::alltoall:
            e.row = true;
            break;
        default:
            break;
    }
    e.length = call.count;
    if (!e.row || !e.used) return e;
    if (!call.uneven) {
        e.length = call.count * n;
        e.own = call.count * me;
        return e;
    }
    const BlockList& list = in ? call.input : call.output;
    e.length = 0;
    for (std::size_t i = 0, packed = 0; i < list.counts.size(); ++i) {
        const std::size_t start = list.displacements.empty() ? packed : list.displacements[i];
        if (i == me) e.own = start;
        if (list.counts[i] > 0) e.length = std::max(e.length, start + list.counts[i]);
        packed += list.counts[i];
    }
    return e;
}

}  // namespace tutti
