#include "gpu/operations/across.h"

#include <algorithm>

#include "cuda/stream_work.h"

namespace tutti {
namespace {

std::byte* writable(const void* memory) {
    return static_cast<std::byte*>(const_cast<void*>(memory));
}

/// Common to messages and blocks: this operation's run in the group's launch order.
class AcrossBase : public TileStages {
public:
    explicit AcrossBase(AcrossRequest request)
        : r_(std::move(request)), w_(r_.window), run_(r_.group->make_run()) {}

    Result<> begin(const void* in, void* out, const TileTurn&) override {
        in_ = writable(in);
        out_ = writable(out);
        return {};
    }
    void all_launched() override { run_->begin(); }
    Result<> wait_accepted(const TileTurn& turn) override {
        return run_->wait_accepted(turn.give_up);
    }
    Result<> health() override { return run_->health(); }
    bool may_cancel() override { return run_->may_cancel(); }
    void stop() override { run_->stop(); }
    void finished() override { run_->end(); }

protected:
    using Steps = std::unique_ptr<DeviceStep>;

    Result<Steps> step(Collective collective, std::size_t count, Rank root,
                       const IntrinsicShape::UnevenBlocks& parts = {}) const {
        if (count == 0) return Steps{};
        IntrinsicShape shape = r_.shape;
        shape.collective = collective;
        shape.count = count;
        shape.root = root;
        (traits_of(collective).reduces ? shape.input : shape.output) = parts;
        if (!traits_of(collective).reduces) shape.factor.reset();
        return r_.group->bind_step(shape);
    }
    static Result<> put(const Steps& step, const std::byte* in, std::byte* out,
                        const TileTurn& turn) {
        return step ? step->enqueue(in, out, turn.stream, turn.give_up) : Result<>{};
    }

    const AcrossRequest r_;
    const Window w_;
    const std::unique_ptr<DeviceRun> run_;
    std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    std::vector<DeviceBytes> pieces_;
};

/// A message: tile i has one part for each stripe, side by side; a local rank has the parts of its
/// stripes. Parts wait for the wire in the output's memory.
class MessageAcross final : public AcrossBase {
public:
    explicit MessageAcross(AcrossRequest request)
        : AcrossBase(std::move(request)),
          share_(r_.stripes.share(r_.shape.count)),
          remainder_(r_.stripes.remainder(r_.shape.count)),
          first_stripe_(r_.stripes.first(r_.local, r_.locals)),
          own_stripes_(r_.stripes.first(r_.local + 1, r_.locals) - first_stripe_) {}

    Result<> bind() {
        pieces_.reserve(static_cast<std::size_t>(own_stripes_) + 1);
        tiles_ = share_ == 0 ? 0 : (share_ + w_.fill_elements - 1) / w_.fill_elements;
        const std::size_t last = share_ == 0 ? 0 : share_ - (tiles_ - 1) * w_.fill_elements;
        for (const bool full : {true, false})
            TUTTI_TRY(bind_tile(full, full ? (tiles_ > 1 ? w_.fill_elements : 0) : last));
        if (adds()) {
            TUTTI_ASSIGN(first_, step(Collective::reduce, remainder_, 0));
        } else if (r_.on_root_host) {
            TUTTI_ASSIGN(first_, step(Collective::broadcast, remainder_, r_.shape.root));
        }
        if (receives()) {
            TUTTI_ASSIGN(last_, step(Collective::broadcast, remainder_, 0));
        }
        return {};
    }

    // The remainder is reduced first and broadcast last.
    Result<> begin(const void* in, void* out, const TileTurn& turn) override {
        TUTTI_TRY(AcrossBase::begin(in, out, turn));
        return put(first_, in_ + remainder_at(), out_ + remainder_at(), turn);
    }
    Result<> end(const TileTurn& turn) override {
        return put(last_, out_ + remainder_at(), out_ + remainder_at(), turn);
    }
    bool asks(Stage step, uint32_t tile) const override {
        switch (step) {
            case Stage::begin:
                return first_ != nullptr;
            case Stage::before:
                return tile < tiles_ && before_[is_full(tile)];
            case Stage::after:
                return tile < tiles_ && after_[is_full(tile)];
            default:
                return last_ != nullptr;
        }
    }
    Result<> before(const TileTurn& turn) override {
        if (turn.tile >= tiles_) return {};
        return put(before_[is_full(turn.tile)], in_ + tile_at(turn.tile),
                   out_ + (adds() ? part_at(turn.tile) : tile_at(turn.tile)), turn);
    }
    Result<> after(const TileTurn& turn) override {
        if (turn.tile >= tiles_) return {};
        return put(after_[is_full(turn.tile)], out_ + part_at(turn.tile), out_ + tile_at(turn.tile),
                   turn);
    }
    std::span<const DeviceBytes> fetched(uint32_t tile) override {
        return adds() || r_.on_root_host ? pieces(tile) : std::span<const DeviceBytes>{};
    }
    std::span<const DeviceBytes> stored(uint32_t tile) override {
        return receives() ? pieces(tile) : std::span<const DeviceBytes>{};
    }

private:
    bool adds() const { return r_.shape.collective == Collective::allreduce; }
    bool receives() const { return adds() || !r_.on_root_host; }
    bool is_full(std::size_t tile) const { return tile + 1 < tiles_; }
    std::size_t length(std::size_t tile) const {
        return std::min(w_.fill_elements, share_ - tile * w_.fill_elements);
    }
    std::size_t tile_at(std::size_t tile) const {
        return tile * w_.fill_elements * static_cast<std::size_t>(r_.stripes.count) *
               r_.element_bytes;
    }
    /// The byte offset of this rank's first stripe of a tile.
    std::size_t part_at(std::size_t tile) const {
        return tile_at(tile) +
               static_cast<std::size_t>(first_stripe_) * length(tile) * r_.element_bytes;
    }
    std::size_t remainder_at() const { return (r_.shape.count - remainder_) * r_.element_bytes; }

    /// each: elements of one stripe's part of the tile.
    Result<> bind_tile(bool full, std::size_t each) {
        const std::size_t part = static_cast<std::size_t>(own_stripes_) * each;
        const IntrinsicShape::UnevenBlocks parts = uneven_parts(each);
        if (adds()) {
            TUTTI_ASSIGN(before_[full], step(Collective::reduce_scatter, part, 0, parts));
        } else if (r_.on_root_host) {
            const auto all = static_cast<std::size_t>(r_.stripes.count);
            TUTTI_ASSIGN(before_[full], step(Collective::broadcast, all * each, r_.shape.root));
        }
        if (receives()) {
            TUTTI_ASSIGN(after_[full], step(Collective::allgather, part, 0, parts));
        }
        return {};
    }

    /// The local ranks' parts of a tile; empty if all have the same number of stripes.
    IntrinsicShape::UnevenBlocks uneven_parts(std::size_t each) const {
        IntrinsicShape::UnevenBlocks parts;
        if (r_.stripes.count % r_.locals == 0) return parts;
        for (Rank local = 0; local < r_.locals; ++local) {
            const auto from = static_cast<std::size_t>(r_.stripes.first(local, r_.locals)),
                       to = static_cast<std::size_t>(r_.stripes.first(local + 1, r_.locals));
            parts.counts.push_back((to - from) * each);
            parts.displacements.push_back(from * each);
        }
        return parts;
    }

    // This rank's stripes of the tile. Local rank 0 also carries the tile's part of the remainder.
    std::span<const DeviceBytes> pieces(uint32_t tile) {
        pieces_.clear();
        const std::size_t from = tile * w_.fill_elements, e = r_.element_bytes;
        for (std::size_t s = 0; s < static_cast<std::size_t>(own_stripes_) && tile < tiles_; ++s)
            pieces_.push_back(
                {out_ + part_at(tile) + s * length(tile) * e, 0, length(tile) * e, s});
        if (r_.local != 0) return pieces_;
        const std::size_t begin = std::max(from, share_),
                          end = std::min(from + w_.fill_elements, share_ + remainder_);
        if (begin < end)
            pieces_.push_back({out_ + remainder_at() + (begin - share_) * e, (begin - from) * e,
                               (end - begin) * e});
        return pieces_;
    }

    const std::size_t share_, remainder_;  // elements of a stripe, and of the remainder
    const Rank first_stripe_, own_stripes_;
    std::size_t tiles_ = 0;
    Steps before_[2], after_[2];  // [0]: of the last tile, [1]: of the other tiles
    Steps first_, last_;
};

/// Blocks: tile i has the i-th fill_elements elements of every block, gathered in this operation's
/// device memory, in the order of by_place: those of one local rank's blocks lie side by side.
class BlocksAcross final : public AcrossBase {
public:
    BlocksAcross(AcrossRequest request, device::DeviceBuffer memory)
        : AcrossBase(std::move(request)), memory_(std::move(memory)) {}

    static std::size_t scratch_bytes(const AcrossRequest& r) {
        return r.window.slots * r.by_place.size() * r.window.fill_elements * r.element_bytes;
    }

    Result<> bind() {
        pieces_.reserve(static_cast<std::size_t>(r_.hosts));
        tiles_ = (r_.shape.count + w_.fill_elements - 1) / w_.fill_elements;
        const std::size_t last = r_.shape.count - (tiles_ - 1) * w_.fill_elements;
        for (const bool full : {true, false}) {
            const std::size_t each = full ? (tiles_ > 1 ? w_.fill_elements : 0) : last;
            TUTTI_ASSIGN(inside_[full],
                         step(r_.shape.collective, each * static_cast<std::size_t>(r_.hosts), 0));
        }
        return {};
    }

    Result<> before(const TileTurn& turn) override {
        if (!adds()) return {};
        TUTTI_TRY(each_block(
            turn, [&](std::size_t at, std::byte* packed) { return copy(packed, in_ + at, turn); }));
        return put(inside_[is_full(turn.tile)], packed(turn.tile, 0), own(turn.tile), turn);
    }
    Result<> after(const TileTurn& turn) override {
        if (adds()) return {};
        return put(inside_[is_full(turn.tile)], own(turn.tile), packed(turn.tile, 0), turn);
    }
    bool asks(Stage step, uint32_t) const override {
        return step == (adds() ? Stage::before : Stage::after);
    }
    Result<> unpack(const TileTurn& turn) override {
        if (adds()) return {};
        return each_block(
            turn, [&](std::size_t at, std::byte* packed) { return copy(out_ + at, packed, turn); });
    }
    std::span<const DeviceBytes> fetched(uint32_t tile) override {
        return adds() ? of_all_hosts(tile) : of_own_block(in_, tile);
    }
    std::span<const DeviceBytes> stored(uint32_t tile) override {
        return adds() ? of_own_block(out_, tile) : of_all_hosts(tile);
    }

private:
    bool adds() const { return r_.shape.collective == Collective::reduce_scatter; }
    bool is_full(std::size_t tile) const { return tile + 1 < tiles_; }
    std::size_t bytes(std::size_t tile) const {
        return std::min(w_.fill_elements, r_.shape.count - tile * w_.fill_elements) *
               r_.element_bytes;
    }
    /// Memory for one block's elements of the tile; place: the block's index in by_place.
    std::byte* packed(std::size_t tile, std::size_t place) const {
        const std::size_t slot = r_.by_place.size() * w_.fill_elements * r_.element_bytes;
        return memory_.data() + tile % w_.slots * slot + place * bytes(tile);
    }
    std::byte* own(std::size_t tile) const {
        return packed(tile,
                      static_cast<std::size_t>(r_.local) * static_cast<std::size_t>(r_.hosts));
    }
    Result<> copy(std::byte* to, const std::byte* from, const TileTurn& turn) const {
        return device::copy(*device::driver(), to, from, bytes(turn.tile), turn.stream);
    }
    template <typename Copy>
    Result<> each_block(const TileTurn& turn, Copy&& copy) const {
        for (std::size_t place = 0; place < r_.by_place.size(); ++place) {
            const auto rank = static_cast<std::size_t>(r_.by_place[place]);
            TUTTI_TRY(
                copy((rank * r_.shape.count + turn.tile * w_.fill_elements) * r_.element_bytes,
                     packed(turn.tile, place)));
        }
        return {};
    }
    std::span<const DeviceBytes> of_own_block(std::byte* buffer, uint32_t tile) {
        pieces_.assign(1, {buffer + tile * w_.fill_elements * r_.element_bytes, 0, bytes(tile)});
        return pieces_;
    }
    std::span<const DeviceBytes> of_all_hosts(uint32_t tile) {
        pieces_.clear();
        for (std::size_t h = 0; h < static_cast<std::size_t>(r_.hosts); ++h)
            pieces_.push_back({own(tile) + h * bytes(tile), h * w_.fill_elements * r_.element_bytes,
                               bytes(tile)});
        return pieces_;
    }

    const device::DeviceBuffer memory_;
    std::size_t tiles_ = 1;
    Steps inside_[2];  // [0]: of the last tile, [1]: of the other tiles
};

}  // namespace

Result<std::unique_ptr<TileStages>> across(AcrossRequest request, const device::Context& context) {
    if (traits_of(request.shape.collective).cut == Cut::whole) {
        auto made = std::make_unique<MessageAcross>(std::move(request));
        TUTTI_TRY(made->bind());
        return made;
    }
    TUTTI_ASSIGN(auto memory,
                 device::DeviceBuffer::allocate(context, BlocksAcross::scratch_bytes(request)));
    auto made = std::make_unique<BlocksAcross>(std::move(request), std::move(memory));
    TUTTI_TRY(made->bind());
    return made;
}

}  // namespace tutti
