// A host's collective on device memory, tile by tile: while the wire has one tile, the next comes
// from the device and the one before goes back to it. Pinned memory holds a few tiles. A tile here
// is one fill of a slot (Window), which is several of the schedule's own tiles. Other ranks do
// not notice, because messages have the size of the schedule's tiles.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/wires.h"
#include "gpu/operations/staged.h"

namespace tutti {

/// A device's work before and after a tile's wire transfer. The launch puts all of it on streams,
/// in the same order on every rank. begin() to end() may call the device's library; unpack() and
/// all_launched() add work that must follow such a call on the stream.
class TileStages {
public:
    /// Bytes that travel between the device and a tile's slot.
    struct DeviceBytes {
        std::byte* device = nullptr;
        std::size_t at = 0, bytes = 0;  // at: from the slot's start
        std::size_t wire = 0;           // the index of the wire that has the slot
    };
    struct TileTurn {
        uint32_t tile = 0;
        device::StreamHandle stream = nullptr;
        const DeviceOperation::GiveUp& give_up;
    };
    virtual ~TileStages() = default;
    virtual Result<> begin(const void* in, void* out, const TileTurn&) = 0;
    virtual Result<> before(const TileTurn&) { return {}; }
    virtual Result<> after(const TileTurn&) { return {}; }
    virtual Result<> unpack(const TileTurn&) { return {}; }
    virtual Result<> end(const TileTurn&) { return {}; }
    virtual void all_launched() {}
    /// Whether a stage calls the library; the same on all ranks of its group.
    enum class Stage : uint8_t { begin, before, after, end };
    virtual bool asks(Stage, uint32_t tile) const { return static_cast<void>(tile), false; }
    /// After gathered launches: waits until the library has accepted its calls.
    virtual Result<> wait_accepted(const TileTurn&) { return {}; }
    /// Valid until the next call. Empty for tiles that this rank's part of the wire does not have.
    virtual std::span<const DeviceBytes> fetched(uint32_t tile) = 0;
    virtual std::span<const DeviceBytes> stored(uint32_t tile) = 0;
    /// ok, or the device library's error.
    virtual Result<> health() { return {}; }
    virtual bool may_cancel() { return true; }
    /// Makes all work on the streams end soon, even work that waits for other devices.
    virtual void stop() {}
    /// The run is over or was cancelled.
    virtual void finished() {}
};

/// Tiles come directly from the caller's buffers and go back there.
struct DirectStagesRequest {
    bool has_input = true, has_output = true;  // this rank
    std::size_t element_bytes = 1;
};
std::unique_ptr<TileStages> direct_stages(const Window& window, const DirectStagesRequest& request);

struct TiledRequest {
    std::shared_ptr<const StagingArea> area;
    std::vector<std::unique_ptr<BoundSchedule>> wires;  // at least one, with windows
    std::unique_ptr<Operation> first;                   // ends before the wire begins; may be null
    std::unique_ptr<TileStages> stages;
    std::size_t element_bytes = 1;
    bool in_place = false;  // input and output of a tile share a slot
};

/// Allocates pinned memory, which waits for the device: call it while no collective runs there.
Result<std::unique_ptr<DeviceOperation>> tile(TiledRequest request);

}  // namespace tutti
