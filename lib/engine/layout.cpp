#include "engine/layout.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

// For a shorter block, a second message costs more than a second lane saves.
constexpr std::size_t short_block_bytes = 32 << 10;

std::size_t ceil_divide(std::size_t value, std::size_t by) {
    return (value + by - 1) / by;
}

// Chunks of a message, or of a block, in a tile.
uint32_t parts_of(Cut cut, const Places& places, uint32_t chunks) {
    return cut == Cut::whole ? chunks : chunks / places.blocks();
}

}  // namespace

Layout::Layout(const LayoutRequest& r)
    : places_(r.collective, r.ranks, r.root, r.chunks),
      cut_(traits_of(r.collective).cut),
      parts_(parts_of(cut_, places_, r.chunks)),
      blocks_(places_.blocks()),
      row_(cut_ == Cut::whole ? 1 : places_.positions() / parts_),
      line_(std::max<std::size_t>(1, cache_line_bytes / r.element_bytes)),
      count_(r.count),
      tile_elements_(std::max<std::size_t>(r.tile_elements, 1)),
      least_part_(r.least_part),
      input_(r.input),
      output_(r.output) {
    const Collective c = r.collective;
    compact_input_ = c == Collective::allgather || c == Collective::gather;
    compact_output_ = c == Collective::reduce_scatter || c == Collective::scatter;
    uneven_ = !input_.counts.empty() || !output_.counts.empty();
    std::size_t longest = uneven_ ? 0 : count_;
    for (const BlockLayout* side : {&input_, &output_})
        for (const std::size_t n : side->counts) longest = std::max(longest, n);
    tiles_ = static_cast<uint32_t>(std::max<std::size_t>(1, ceil_divide(longest, tile_elements_)));
    const std::size_t most = std::min(tile_elements_, longest);
    longest_ = std::min(chunk_length(most), most);
}

// Long chunks start at cache lines; with short ones that would make their lengths too uneven.
std::size_t Layout::chunk_length(std::size_t elements) const {
    const std::size_t each = ceil_divide(elements, parts_);
    return std::max(least_part_, each >= 16 * line_ ? round_up(each, line_) : each);
}

std::size_t Layout::length_of(Space space, uint32_t block) const {
    const BlockLayout& b = blocks_of(space);
    if (b.counts.empty()) return count_;
    return b.counts[b.counts.size() == 1 ? 0 : block];
}

std::size_t Layout::start_of(Space space, uint32_t block) const {
    if (space == Space::input ? compact_input_ : compact_output_) return 0;
    const BlockLayout& b = blocks_of(space);
    return b.displacements.empty() ? block * count_ : b.displacements[block];
}

std::size_t Layout::elements(Space space) const {
    const BlockLayout& b = blocks_of(space);
    if (!b.counts.empty()) return std::accumulate(b.counts.begin(), b.counts.end(), std::size_t{0});
    const bool compact = space == Space::input ? compact_input_ : compact_output_;
    return compact ? count_ : row_ * count_;
}

std::size_t Layout::block_count(Space space, uint32_t chunk) const {
    if (cut_ == Cut::whole || chunk == any_chunk) return count_;
    return length_of(space, places_.position(space, chunk) % row_);
}

Layout::Piece Layout::piece(Space space, uint32_t tile, uint32_t chunk) const {
    const std::size_t base = tile * tile_elements_;
    std::size_t start = 0, length = count_;
    uint32_t part = chunk;
    if (cut_ != Cut::whole) {
        if (chunk == any_chunk) chunk = 0;
        part = chunk / blocks_;
        const uint32_t block = places_.position(space, chunk) % row_;
        // A scratch slot begins at 0; the length of a block is the same in both buffers.
        start = space == Space::scratch ? 0 : start_of(space, block);
        length = length_of(space, block);
    }
    const std::size_t in_tile = base < length ? std::min(tile_elements_, length - base) : 0;
    const std::size_t each = chunk_length(in_tile);
    const std::size_t from = std::min(part * each, in_tile), to = std::min(from + each, in_tile);
    return {start + base + from, to - from};
}

LayoutRequest cut_for(LayoutRequest call, const Schedule& schedule, const Reducer& reducer,
                      std::size_t message_bytes) {
    const Places places(call.collective, call.ranks, call.root, schedule.chunks);
    const uint32_t parts = parts_of(traits_of(call.collective).cut, places, schedule.chunks);
    std::size_t widest = reducer.bytes(Width::raw);
    if (schedule.may_send_partials(call.ranks))
        widest = std::max(widest, reducer.bytes(Width::partial));
    std::size_t chunk = std::max<std::size_t>(1, message_bytes / widest / schedule.longest_run);
    // Cuts a long chunk to whole cache lines, so that it stays in the message when the layout moves
    // its start to a line.
    const std::size_t line = std::max<std::size_t>(1, cache_line_bytes / reducer.bytes(Width::raw));
    if (chunk >= 16 * line) chunk = chunk / line * line;
    call.chunks = schedule.chunks;
    call.element_bytes = reducer.bytes(Width::raw);
    call.tile_elements = chunk * parts;
    if (call.short_blocks_whole)
        call.least_part = std::min(chunk, std::max<std::size_t>(1, short_block_bytes / widest));
    return call;
}

}  // namespace tutti
