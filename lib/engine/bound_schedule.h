// A schedule bound to channels and kernels, run tile by tile. Nothing here allocates, locks or
// looks anything up once it is bound.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/channels.h"
#include "reduce/reduce.h"
#include "schedule/schedule.h"
#include "transport/operation.h"

namespace tutti {

/// A step with everything decided that can be decided before the run.
struct BoundStep {
    ReceiverSlot* recv = nullptr;
    Sender* send = nullptr;
    ReduceFn kernel = nullptr;  // combines or converts; nullptr: the step only pushes `local`
    uint32_t chunk = 0;         // the run of chunks it moves
    uint32_t chunks = 1;
    Region local, out;
    uint8_t in_bytes = 0, local_bytes = 0, result_bytes = 0;  // per element, in its form
    bool local_first = false;
    bool build = false;   // reserve/commit: the value is computed into the channel's memory
    bool offer = false;   // the message is wanted in `out`, unchanged
    bool settle = false;  // earlier pushes from memory this step overwrites must have drained
    After after;
};

/// Where tile boundaries fall: all tiles but the last are alike.
class TileMap {
public:
    TileMap() = default;
    TileMap(std::size_t count, std::size_t tile_elements, uint32_t chunks,
            std::size_t element_bytes);
    uint32_t tiles() const { return tiles_; }
    std::size_t base(uint32_t tile) const { return tile * tile_elements_; }
    /// The first element of a chunk within its tile; chunk == chunks gives the tile's length.
    std::size_t at(uint32_t tile, uint32_t chunk) const {
        return (tile + 1 == tiles_ ? last_ : full_)[chunk];
    }

private:
    uint32_t tiles_ = 1;
    std::size_t tile_elements_ = 0;
    std::vector<std::size_t> full_, last_;
};

struct BoundLane {
    std::vector<BoundStep> steps;
    std::vector<Sender*> pushes;  // senders that may hold on to the caller's or scratch memory
    // The run's position, and whether the current step's message was asked for.
    uint32_t tile = 0;
    uint32_t step = 0;
    bool offered = false;
};

class BoundSchedule final : public Operation {
public:
    struct Parts {
        TileMap tiles;
        std::vector<BoundLane> lanes;
        std::vector<Sender*> senders;  // each once
        std::vector<ReceiverSlot*> receivers;
        std::unique_ptr<std::byte[]> scratch;
        std::size_t slot_bytes = 0;
        int32_t divisor = 1;
    };
    explicit BoundSchedule(Parts parts) : p_(std::move(parts)) {}

    void start(const Tag& tag, const void* in, void* out) override;
    Code progress() override;
    bool moved() const override { return moved_; }
    const Trouble& trouble() const override { return trouble_; }
    void cancel() override;
    void arm(bool on) override;
    Code health() const override;
    Rank waits_for() const override;

private:
    enum class Turn : uint8_t { advanced, waiting, failed };
    Turn run_step(BoundLane& lane);
    bool may_start(const BoundLane& lane, const BoundStep& step) const;
    Turn receive(BoundLane& lane, const BoundStep& step, std::size_t bytes, const void*& data);
    void combine(const BoundStep& step, std::size_t count, const void* data, const void* local,
                 std::byte* out, std::byte* built) const;
    std::byte* place(const Region& region, uint32_t tile, std::size_t element_bytes) const;
    bool drained(const BoundLane& lane) const;

    Parts p_;
    Tag tag_;
    std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    uint32_t lanes_left_ = 0;
    bool moved_ = false;
    Trouble trouble_;
};

}  // namespace tutti
