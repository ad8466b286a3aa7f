#include "schedule/places.h"

namespace tutti {

Places::Places(Collective collective, Rank ranks, Rank root, uint32_t chunks)
    : collective_(collective), ranks_(ranks), root_(root), positions_(chunks) {
    const auto n = static_cast<uint32_t>(ranks);
    switch (traits_of(collective).cut) {
        case Cut::whole:
            break;
        case Cut::blocks:
            blocks_ = n;
            break;
        case Cut::pairs:
            blocks_ = n * n;
            positions_ = chunks / n;
            break;
    }
}

Rank Places::source(uint32_t chunk) const {
    switch (collective_) {
        case Collective::broadcast:
        case Collective::scatter:
            return root_;
        case Collective::alltoall:
            return static_cast<Rank>(chunk % blocks_ / static_cast<uint32_t>(ranks_));
        default:
            return static_cast<Rank>(chunk % blocks_);
    }
}

Rank Places::destination(uint32_t chunk) const {
    return static_cast<Rank>(chunk % static_cast<uint32_t>(ranks_));
}

bool Places::holds(Rank rank, Space space, uint32_t chunk) const {
    const bool in = space == Space::input;
    switch (collective_) {
        case Collective::allreduce:
        case Collective::barrier:
        case Collective::scan:
            return true;
        case Collective::broadcast:
            return !in || rank == root_;
        case Collective::reduce:
            return in || rank == root_;
        case Collective::exscan:
            return in || rank > 0;
        case Collective::allgather:
            return !in || source(chunk) == rank;
        case Collective::gather:
            return in ? source(chunk) == rank : rank == root_;
        case Collective::scatter:
            return in ? rank == root_ : destination(chunk) == rank;
        case Collective::reduce_scatter:
            return in || destination(chunk) == rank;
        case Collective::alltoall:
            return (in ? source(chunk) : destination(chunk)) == rank;
    }
    return false;
}

uint32_t Places::position(Space space, uint32_t chunk) const {
    if (collective_ != Collective::alltoall) return chunk;
    const auto n = static_cast<uint32_t>(ranks_);
    const Rank block = space == Space::input ? destination(chunk) : source(chunk);
    return chunk / blocks_ * n + static_cast<uint32_t>(block);
}

uint32_t Places::chunk_at(Rank rank, Space space, uint32_t position) const {
    if (collective_ != Collective::alltoall) return position;
    const auto n = static_cast<uint32_t>(ranks_), me = static_cast<uint32_t>(rank);
    const uint32_t other = position % n;
    return position / n * blocks_ + (space == Space::input ? me * n + other : other * n + me);
}

}  // namespace tutti
