// Maps a call's chunks to places in the caller's buffers, tile by tile.
#pragma once

#include <cstddef>
#include <vector>

#include "reduce/reduce.h"
#include "schedule/places.h"
#include "schedule/schedule.h"

namespace tutti {

/// Lengths and starts of a buffer's blocks, in elements. Empty lists: all blocks have one length,
/// one after the other.
struct BlockLayout {
    std::vector<std::size_t> counts;
    std::vector<std::size_t> displacements;
    bool operator==(const BlockLayout&) const = default;
};

struct LayoutRequest {
    Collective collective = Collective::allreduce;
    Rank ranks = 1;
    Rank rank = 0;
    Rank root = 0;
    uint32_t chunks = 1;              // the schedule's
    std::size_t count = 0;            // elements of the message, or of each block
    BlockLayout input, output;        // uneven blocks, by the rank at the other end of their
                                      // messages
    std::size_t tile_elements = 0;    // elements of a tile: of the message, or of each block
    bool short_blocks_whole = false;  // does not cut a block that is too short for two messages
    std::size_t least_part = 1;       // elements of a block's chunk in a tile, except the last one
    std::size_t element_bytes = 1;
};

/// A call's data as the schedule cuts it: derives the fields from `chunks` to `least_part` from the
/// schedule, the reducer and the largest message. The caller has set the rest of `call`.
LayoutRequest cut_for(LayoutRequest call, const Schedule& schedule, const Reducer& reducer,
                      std::size_t message_bytes);

/// Tile t of a whole message has its t-th tile_elements elements, cut into chunks. Tile t of blocks
/// has the t-th tile_elements elements of every block. If blocks have different lengths, the
/// longest decides the number of tiles; shorter ones have no elements in the last tiles.
class Layout {
public:
    struct Piece {
        std::size_t offset = 0;  // elements from the start of the buffer
        std::size_t count = 0;
    };

    explicit Layout(const LayoutRequest& request);

    uint32_t tiles() const { return tiles_; }
    /// Whether there are no elements at all.
    bool empty() const { return longest_ == 0; }
    /// Whether blocks have different lengths: lanes send no more messages for a block that has
    /// ended.
    bool uneven() const { return uneven_; }
    Piece piece(Space space, uint32_t tile, uint32_t chunk) const;
    /// Whether the chunk is not the first of its block in a tile: then it is empty if the ones
    /// before it are.
    bool later_part(uint32_t chunk) const {
        return cut_ != Cut::whole && chunk != any_chunk && chunk >= blocks_;
    }
    /// Elements of the whole block that a chunk belongs to.
    std::size_t block_count(Space space, uint32_t chunk) const;
    /// Elements of the rank's whole buffer.
    std::size_t elements(Space space) const;
    /// The most elements that any chunk of any tile has.
    std::size_t longest_chunk() const { return longest_; }

private:
    std::size_t start_of(Space space, uint32_t block) const;
    std::size_t length_of(Space space, uint32_t block) const;
    const BlockLayout& blocks_of(Space space) const {
        return space == Space::input ? input_ : output_;
    }
    /// The length of a chunk, but for the last, if that many elements of a message or block are
    /// cut.
    std::size_t chunk_length(std::size_t elements) const;

    Places places_;
    Cut cut_;
    uint32_t parts_ = 1;  // chunks of a message, or of a block, in a tile
    uint32_t blocks_ = 1;
    uint32_t row_ = 1;  // blocks side by side in a buffer
    uint32_t tiles_ = 1;
    bool uneven_ = false;
    bool compact_input_ = false, compact_output_ = false;  // the buffer holds only this rank's
                                                           // block
    std::size_t line_ = 1;                                 // elements of a cache line
    std::size_t count_ = 0, tile_elements_ = 1, least_part_ = 1, longest_ = 0;
    BlockLayout input_, output_;
};

}  // namespace tutti
