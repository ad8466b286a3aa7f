// The tiles of a call's own buffers.
#include <algorithm>

#include "gpu/operations/tiled.h"

namespace tutti {
namespace {

class DirectStages final : public TileStages {
public:
    DirectStages(const Window& window, const DirectStagesRequest& request)
        : w_(window), r_(request) {
        pieces_.reserve(std::max(w_.in_blocks, w_.out_blocks));
    }
    Result<> begin(const void* in, void* out, const TileTurn&) override {
        // Only copied from.
        in_ = static_cast<std::byte*>(const_cast<void*>(in));
        out_ = static_cast<std::byte*>(out);
        return {};
    }
    std::span<const DeviceBytes> fetched(uint32_t tile) override {
        return pieces(r_.has_input ? in_ : nullptr, w_.in_blocks, tile);
    }
    std::span<const DeviceBytes> stored(uint32_t tile) override {
        return pieces(r_.has_output ? out_ : nullptr, w_.out_blocks, tile);
    }

private:
    std::span<const DeviceBytes> pieces(std::byte* buffer, std::size_t blocks, uint32_t tile) {
        pieces_.clear();
        const std::size_t from = tile * w_.fill_elements;
        if (!buffer || from >= w_.count) return pieces_;
        const std::size_t bytes = std::min(w_.fill_elements, w_.count - from) * r_.element_bytes;
        for (std::size_t b = 0; b < blocks; ++b)
            pieces_.push_back({buffer + (b * w_.count + from) * r_.element_bytes,
                               b * w_.fill_elements * r_.element_bytes, bytes});
        return pieces_;
    }

    const Window w_;
    const DirectStagesRequest r_;
    std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    std::vector<DeviceBytes> pieces_;
};

}  // namespace

std::unique_ptr<TileStages> direct_stages(const Window& window,
                                          const DirectStagesRequest& request) {
    return std::make_unique<DirectStages>(window, request);
}

}  // namespace tutti
