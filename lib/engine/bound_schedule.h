// A schedule bound to channels and kernels, run tile by tile. A run does not allocate, lock or look
// anything up.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/channels.h"
#include "engine/layout.h"
#include "engine/work_memory.h"
#include "reduce/reduce.h"
#include "schedule/schedule.h"
#include "transport/operation.h"

namespace tutti {

/// A run whose buffers hold a few of its tiles at a time, in slots. Consecutive tiles share a slot:
/// they are a fill of it. Fills take the slots in turn.
struct Window {
    uint32_t slots = 0;  // 0: the buffers hold the whole message
    uint32_t tiles = 1;  // tiles of a fill
    uint32_t fills = 1;
    std::size_t fill_elements = 0;              // of the message, or of each
                                                // block
    std::size_t count = 0;                      // elements of the whole message, or of a block
    std::size_t in_blocks = 1, out_blocks = 1;  // side by side in the buffers

    std::size_t blocks(Space space) const { return space == Space::input ? in_blocks : out_blocks; }
    /// Elements of a slot. A buffer is `slots` of them.
    std::size_t slot(Space space) const { return blocks(space) * fill_elements; }
    /// The offset in the window's buffer of an element of the whole buffer, while its tile is in
    /// the buffer.
    std::size_t place(Space space, uint32_t tile, std::size_t offset) const {
        const uint32_t index = tile / tiles;
        const std::size_t block = blocks(space) > 1 ? offset / count : 0;
        return index % slots * slot(space) + block * fill_elements + (offset - block * count) -
               index * fill_elements;
    }
};

/// A step, with all decisions that can be made before the run.
struct BoundStep {
    ReceiverSlot* recv = nullptr;
    Sender* send = nullptr;
    ReduceFn kernel = nullptr;    // combines or converts; nullptr: the step only pushes `local`
    ReduceFn streamed = nullptr;  // the same with streaming stores, if they can be faster
    Region local, out;
    uint32_t chunks = 1;
    SlotPattern slots;
    uint8_t in_bytes = 0, local_bytes = 0, result_bytes = 0;  // bytes per element, in its form
    bool local_first = false;
    bool keep = false;             // the message stays for the lane's next receive of this peer
    bool build = false;            // reserve/commit: the value is written into the channel's memory
    Writer writer = Writer::copy;  // of the value computed into the channel's memory
    bool stream_out = false;       // streaming stores to `out`, unless in place
    bool offer = false;            // the message belongs in `out`, unchanged
    bool needs_drain = false;  // waits until earlier pushes from memory that this step overwrites
                               // have drained
    bool one_piece = true;     // the run is one piece in each of the step's regions
    bool plain = false;        // one piece, of blocks of one length: `first` and `last` hold its
                               // positions
    After after;
    // The start of a one-piece run in the first tile and in the last, in elements of its region.
    struct Position {
        std::size_t local = 0, out = 0, count = 0;
    } first, last;
};

struct BoundLane {
    std::vector<BoundStep> steps;
    std::vector<Sender*> pushes;  // senders that may still read the caller's or scratch memory
    // The run's position, and whether this lane has offered memory for the current step's message.
    uint32_t tile = 0;
    uint32_t step = 0;
    bool offered = false;
    // Cache of the current step's position if it is not plain, because progress() retries a waiting
    // step many times.
    bool placed = false;
    BoundStep::Position at;
    Tag tag;                  // of the current step's messages
    bool later_part = false;  // with block lengths in tags: a later message of the block
};

class BoundSchedule final : public Operation {
public:
    struct Parts {
        Layout layout;
        Schedule schedule;                        // for its numbering of chunks; the steps are in
                                                  // `lanes`
        std::size_t tile_elements = 0;            // elements from one tile to the next
        std::size_t in_bytes = 0, out_bytes = 0;  // of the caller's buffers
        std::vector<BoundLane> lanes;
        std::vector<Sender*> senders;  // without duplicates
        std::vector<ReceiverSlot*> receivers;
        SharedBytes scratch;
        std::size_t slot_bytes = 0;
        int32_t divisor = 1;
        UserFunction function;      // a program's own operator
        bool tag_by_block = false;  // only the two ranks of a message know its size
        Window window;
    };
    explicit BoundSchedule(Parts parts) : p_(std::move(parts)) {}

    void start(const Tag& tag, const void* in, void* out) override;
    Poll progress() override;
    void cancel() override;
    void arm(bool on) override;
    Code health() const override;
    bool untaken() const override;
    Rank waits_for() const override;

    // With a window, valid after start().
    const Window& window() const { return p_.window; }
    /// Lets the lanes work on the first `fills` fills: their input is ready, and there is room for
    /// their output.
    void allow(uint32_t fills);
    /// The number of fills that all lanes have finished.
    uint32_t finished() const;
    /// True when no transport still reads memory of finished fills.
    bool drained() const;

private:
    enum class StepOutcome : uint8_t { advanced, waiting, failed };
    StepOutcome run_step(BoundLane& lane);
    bool may_start(const BoundLane& lane, const BoundStep& step) const;
    StepOutcome receive(BoundLane& lane, const BoundStep& step, const BoundStep::Position& at,
                        const void*& data);
    /// Destinations of a result. The kernel writes to `out`, or else to the channel's memory.
    struct Results {
        std::byte* out = nullptr;
        std::byte* built = nullptr;  // the channel's memory
        bool past_cache = false;     // the kernel uses streaming stores
    };
    void compute(const BoundLane& lane, const BoundStep& step, const BoundStep::Position& at,
                 const void* data, std::byte* out, std::byte* built) const;
    void combine(const BoundStep& step, std::size_t count, const void* data, const void* local,
                 const Results& to) const;
    void combine_pieces(const BoundStep& step, uint32_t tile, const void* data, Results to) const;
    void place(BoundLane& lane, const BoundStep& step) const;
    BoundStep::Position plain_place(const BoundStep& step, uint32_t tile) const;
    std::size_t count_of(const BoundStep& step, uint32_t tile) const;
    Layout::Piece piece(const Region& region, uint32_t tile, uint32_t index) const;
    std::byte* address(const Region& region, uint32_t tile, uint32_t slot_offset,
                       std::size_t offset, std::size_t element_bytes) const;
    bool drained(const BoundLane& lane) const;
    bool sends_are_over() const;

    Parts p_;
    std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    uint32_t lanes_left_ = 0;
    uint32_t allowed_ = 0;  // the number of tiles that lanes may work on
    bool streams_ = false;  // the caller's buffers do not overlap
    Failure failure_;
};

}  // namespace tutti
