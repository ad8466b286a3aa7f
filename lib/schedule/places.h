// Maps each chunk to its position in a rank's buffers, if the rank's buffers hold it at all.
#pragma once

#include "schedule/schedule.h"

namespace tutti {

/// One collective's chunks. A position is a chunk's index in a buffer, in chunks. In place, an
/// input chunk and an output chunk at the same position share their memory.
class Places {
public:
    Places(Collective collective, Rank ranks, Rank root, uint32_t chunks);

    /// Chunks per part: 1, ranks or ranks². A chunk's block is chunk % blocks().
    uint32_t blocks() const { return blocks_; }
    /// The number of positions in the larger of the two buffers.
    uint32_t positions() const { return positions_; }

    /// Whether the rank's buffer has that chunk; if not, the rank can hold the chunk in scratch
    /// only.
    bool holds(Rank rank, Space space, uint32_t chunk) const;
    uint32_t position(Space space, uint32_t chunk) const;
    /// The chunk at a position of the rank's buffer; only if the rank holds it there.
    uint32_t chunk_at(Rank rank, Space space, uint32_t position) const;
    /// The rank whose input holds the chunk, if the collective moves chunks and does not reduce.
    Rank source(uint32_t chunk) const;

private:
    Rank destination(uint32_t chunk) const;

    Collective collective_;
    Rank ranks_, root_;
    uint32_t blocks_ = 1;
    uint32_t positions_ = 1;
};

}  // namespace tutti
