// Maps each chunk to its position in a rank's buffers, if the rank's buffers hold it at all.
#pragma once

#include "schedule/schedule.h"

namespace tutti {

/// One collective's chunks. Positions are where chunks stand in a buffer, in units of chunks; a
/// chunk of the input and one of the output at the same position are one memory in place.
class Places {
public:
    Places(Collective collective, Rank ranks, Rank root, uint32_t chunks);

    /// Chunks per part: 1, ranks or ranks². A chunk's block is chunk % blocks().
    uint32_t blocks() const { return blocks_; }
    /// The number of positions in the larger of the two buffers.
    uint32_t positions() const { return positions_; }

    /// Whether the rank's buffer has that chunk: elsewhere it may live in scratch only.
    bool holds(Rank rank, Space space, uint32_t chunk) const;
    uint32_t position(Space space, uint32_t chunk) const;
    /// The chunk at a position of the rank's buffer; only if the rank holds it there.
    uint32_t chunk_at(Rank rank, Space space, uint32_t position) const;
    /// The rank whose input the chunk is, where chunks are moved and not reduced.
    Rank source(uint32_t chunk) const;

private:
    Rank destination(uint32_t chunk) const;

    Collective collective_;
    Rank ranks_, root_;
    uint32_t blocks_ = 1;
    uint32_t positions_ = 1;
};

}  // namespace tutti
