#include "gpu/operations/tiled.h"

#include <algorithm>
#include <cstring>

#include "cuda/stream_work.h"

namespace tutti {
namespace {

/// Counters over all runs, one cache line each; they only grow. One side waits until a counter is
/// large enough.
enum TileWord : std::size_t { tiles_fetched, tiles_done, tiles_freed, tile_words };

struct TileStreams {
    device::DeviceStream inside, inputs, outputs;
};

struct Events {
    device::DeviceEvent ready, finished;
    // By slot: the library's work before the wire is over; the copies are; its work after it is.
    std::vector<device::DeviceEvent> before, fetched, stored, after;
    std::vector<device::DeviceEvent> last;  // by stream: a cancelled run waits for them
};

Result<std::vector<device::DeviceEvent>> make_events(const device::Context& context,
                                                     uint32_t count) {
    std::vector<device::DeviceEvent> made;
    for (uint32_t i = 0; i < count; ++i) {
        TUTTI_ASSIGN(device::DeviceEvent event, device::DeviceEvent::create(context));
        made.push_back(std::move(event));
    }
    return made;
}

std::size_t slots_bytes(const TiledRequest& r, const Wires& w) {
    const std::size_t inputs = r.in_place ? 0 : w.bytes(Space::input);
    return round_up(inputs + w.bytes(Space::output), no_share_bytes);
}

class TiledOperation final : public DeviceOperation {
public:
    TiledOperation(TiledRequest request, std::unique_ptr<Wires> wires, device::PinnedBuffer memory,
                   TileStreams streams, Events events)
        : r_(std::move(request)),
          w_(std::move(wires)),
          memory_(std::move(memory)),
          streams_(std::move(streams)),
          e_(std::move(events)),
          words_(memory_.data() + slots_bytes(r_, *w_)),
          inputs_(memory_.data()),
          outputs_(r_.in_place ? inputs_ : inputs_ + w_->bytes(Space::input)) {
        list_items();
    }
    ~TiledOperation() override { cancel(); }

    // Puts all work on the streams now, because NCCL calls must have the same order on all ranks.
    // If the device has to wait for the wire, it waits for a word.
    Result<> launch(const void* in, void* out, void* stream, const GiveUp& give_up) override {
        const device::Context::Scope current(r_.area->context);
        begin_launch(in, out, stream);
        for (const Item& item : items_)
            if (auto launched = put_whole(item, give_up); !launched) return cancel_launch(launched);
        return {};
    }
    uint32_t launch_parts() const override { return static_cast<uint32_t>(part_ends_.size()); }
    Result<> launch_part(uint32_t part, const void* in, void* out, void* stream,
                         const GiveUp& give_up) override {
        const device::Context::Scope current(r_.area->context);
        if (part == 0) begin_launch(in, out, stream);
        const std::size_t last = part_ends_[part] - 1;
        for (std::size_t i = part == 0 ? 0 : part_ends_[part - 1]; i < last; ++i)
            if (auto launched = put_whole(items_[i], give_up); !launched)
                return cancel_launch(launched);
        auto asked = prepare(items_[last]);
        if (asked) asked = ask(items_[last], give_up);
        return asked ? asked : cancel_launch(asked);
    }
    Result<> finish_part(uint32_t part, void*, const GiveUp& give_up) override {
        const device::Context::Scope current(r_.area->context);
        const Item& item = items_[part_ends_[part] - 1];
        auto accepted = r_.stages->wait_accepted(turn(item, give_up));
        if (accepted) accepted = conclude(item, give_up);
        return accepted ? accepted : cancel_launch(accepted);
    }
    bool may_cancel() override { return !under_way_ || r_.stages->may_cancel(); }

    void start(const Tag& tag, const void*, void*) override {
        tag_ = tag;
        failure_ = {};
        health_.note_progress();
        phase_ = r_.first ? Phase::first : Phase::wire;
        running().start(tag_, inputs_, outputs_);
    }

    Poll progress() override {
        bool moved = false;
        if (phase_ == Phase::first) {
            const Poll first = r_.first->progress();
            if (first.code != Code::ok) return check_device(first);
            moved = first.moved;
            phase_ = Phase::wire;
            w_->start(tag_, inputs_, outputs_);
        }
        if (phase_ == Phase::wire) {
            Poll wire = move_wire();
            wire.moved |= moved;
            if (wire.code != Code::ok) return check_device(wire);
            moved = wire.moved;
            phase_ = Phase::storing;
        }
        if (phase_ == Phase::storing) {
            const auto there = e_.finished.passed();
            if (!there) return failed(there.error());
            if (!*there) return check_device({Code::in_progress, moved});
            if (const auto health = r_.stages->health(); !health) return failed(health.error());
            end();
        }
        return Code::ok;
    }
    void cancel() override {
        if (!under_way_) return;
        if (runs_on_host()) running().cancel();
        // Let the streams pass their waits for the wire; stop() then ends waits for other devices.
        for (const TileWord which : {tiles_done, tiles_freed})
            device::store_word(word(which), base_);
        r_.stages->stop();
        wait_for_streams();
        // The launch may have failed half-way, so that no stream writes the last value.
        device::store_word(word(tiles_fetched), base_);
        end();
    }
    // The operation that was armed may have ended since, so disarming reaches both.
    void arm(bool on) override {
        if (on && runs_on_host()) running().arm(true);
        if (on) return;
        if (r_.first) r_.first->arm(false);
        w_->arm(false);
    }
    Code health() const override { return runs_on_host() ? running().health() : Code::ok; }
    Rank waits_for() const override { return runs_on_host() ? running().waits_for() : nobody; }

private:
    enum class Phase : uint8_t { idle, first, wire, storing };

    const device::Driver& driver() const { return r_.area->context.driver(); }
    bool runs_on_host() const { return phase_ == Phase::first || phase_ == Phase::wire; }
    Operation& running() const {
        return phase_ == Phase::first ? *r_.first : static_cast<Operation&>(*w_);
    }

    uint32_t& word(TileWord which) const {
        return *reinterpret_cast<uint32_t*>(words_ + which * no_share_bytes);
    }
    /// The value of a word once `tiles` tiles of this run are done.
    uint32_t after_tiles(uint32_t tiles) const { return base_ - w_->fills() + tiles; }

    Result<> wait_word(device::StreamHandle stream, TileWord which, uint32_t tile) const {
        return device::hold_until(driver(), stream, word(which), after_tiles(tile + 1));
    }
    Result<> copy(void* to, const void* from, std::size_t bytes,
                  const device::DeviceStream& on) const {
        return device::copy(driver(), to, from, bytes, on.handle());
    }

    // ---- launching: one item after the other; the library's call is in the middle of each

    using Stage = TileStages::Stage;
    struct Item {
        Stage step = Stage::begin;
        uint32_t tile = 0;
    };

    void list_items() {
        items_.push_back({Stage::begin});
        // With a lag of slots - 1, a tile's "after" never waits behind work that needs its slot.
        const uint32_t lag = w_->slots() - 1;
        for (uint32_t i = 0; i < w_->fills() + lag; ++i) {
            if (i < w_->fills()) items_.push_back({Stage::before, i});
            if (i >= lag) items_.push_back({Stage::after, i - lag});
        }
        items_.push_back({Stage::end, w_->fills()});
        // A part ends at a library call. Ranks may differ in their work between library calls.
        for (std::size_t i = 0; i + 1 < items_.size(); ++i)
            if (r_.stages->asks(items_[i].step, items_[i].tile)) part_ends_.push_back(i + 1);
        part_ends_.push_back(items_.size());
    }

    void begin_launch(const void* in, void* out, void* stream) {
        base_ += w_->fills();
        under_way_ = true;
        callers_ = {in, out, static_cast<device::StreamHandle>(stream)};
    }
    Result<> cancel_launch(const Result<>& why) {
        cancel();
        return why;
    }

    TileStages::TileTurn turn(const Item& item, const GiveUp& give_up) const {
        return {item.tile, streams_.inside.handle(), give_up};
    }
    Result<> put_whole(const Item& item, const GiveUp& give_up) {
        TUTTI_TRY(prepare(item));
        TUTTI_TRY(ask(item, give_up));
        return conclude(item, give_up);
    }
    Result<> ask(const Item& item, const GiveUp& give_up) {
        const TileStages::TileTurn turn = this->turn(item, give_up);
        switch (item.step) {
            case Stage::begin:
                return r_.stages->begin(callers_.in, callers_.out, turn);
            case Stage::before:
                return r_.stages->before(turn);
            case Stage::after:
                return r_.stages->after(turn);
            default:
                return r_.stages->end(turn);
        }
    }

    /// Stream work in front of the library's call.
    Result<> prepare(const Item& item) {
        const device::StreamHandle inside = streams_.inside.handle();
        const uint32_t slot = item.tile % w_->slots();
        if (item.step == Stage::begin) {
            TUTTI_TRY(e_.ready.record(callers_.stream));
            return e_.ready.hold(inside);
        }
        if (item.step == Stage::before && item.tile >= w_->slots())
            return e_.fetched[slot].hold(inside);
        return item.step == Stage::after ? put_store(item.tile, slot) : Result<>{};
    }
    /// Stream work behind the library's call.
    Result<> conclude(const Item& item, const GiveUp& give_up) {
        const device::StreamHandle inside = streams_.inside.handle();
        const uint32_t slot = item.tile % w_->slots();
        switch (item.step) {
            case Stage::begin:
                return {};
            case Stage::before:
                TUTTI_TRY(e_.before[slot].record(inside));
                return put_fetch(item.tile, slot);
            case Stage::after:
                TUTTI_TRY(r_.stages->unpack(turn(item, give_up)));
                return e_.after[slot].record(inside);
            default:
                r_.stages->all_launched();
                TUTTI_TRY(e_.finished.record(inside));
                return e_.finished.hold(callers_.stream);
        }
    }

    Result<> put_fetch(uint32_t i, uint32_t slot) {
        const device::StreamHandle inputs = streams_.inputs.handle();
        TUTTI_TRY(e_.before[slot].hold(inputs));
        if (i >= w_->slots()) {
            // Wait until the slot's last tile has left it, over the wire and to the device.
            TUTTI_TRY(wait_word(inputs, tiles_freed, i - w_->slots()));
            TUTTI_TRY(e_.stored[slot].hold(inputs));
        }
        for (const TileStages::DeviceBytes& piece : r_.stages->fetched(i))
            TUTTI_TRY(copy(inputs_ + w_->place(Space::input, piece.wire, slot) + piece.at,
                           piece.device, piece.bytes, streams_.inputs));
        TUTTI_TRY(device::write_word(driver(), inputs, word(tiles_fetched), after_tiles(i + 1)));
        return e_.fetched[slot].record(inputs);
    }

    Result<> put_store(uint32_t j, uint32_t slot) {
        const device::StreamHandle outputs = streams_.outputs.handle();
        if (j >= w_->slots()) TUTTI_TRY(e_.after[slot].hold(outputs));
        // The word implies this too, except in a cancelled run.
        TUTTI_TRY(e_.fetched[slot].hold(outputs));
        TUTTI_TRY(wait_word(outputs, tiles_done, j));
        for (const TileStages::DeviceBytes& piece : r_.stages->stored(j))
            TUTTI_TRY(copy(piece.device,
                           outputs_ + w_->place(Space::output, piece.wire, slot) + piece.at,
                           piece.bytes, streams_.outputs));
        TUTTI_TRY(e_.stored[slot].record(outputs));
        return e_.stored[slot].hold(streams_.inside.handle());
    }

    // ---- moving

    Poll move_wire() {
        // Pairs with the device's write of the word, after its copy of the tile.
        const uint32_t fetched = device::load_word(word(tiles_fetched)) - after_tiles(0);
        w_->allow(fetched);
        Poll poll = w_->progress();
        if (poll.failure) return poll;
        // A single rank has no wire transfer, but must still wait for its input.
        const uint32_t done = std::min(w_->finished(), fetched);
        device::store_word(word(tiles_done), after_tiles(done));
        if (w_->drained()) device::store_word(word(tiles_freed), after_tiles(done));
        if (done < w_->fills()) poll.code = Code::in_progress;
        return poll;
    }

    /// If the run makes no progress, checks whether the device has failed: it would write no word.
    Poll check_device(const Poll& poll) {
        if (poll.failure) return poll;
        if (poll.moved) health_.note_progress();
        if (poll.moved || !health_.due()) return poll;
        if (const auto asked = e_.finished.passed(); !asked) return failed(asked.error());
        if (const auto health = r_.stages->health(); !health) return failed(health.error());
        return poll;
    }

    void wait_for_streams() const {
        const device::Context::Scope current(r_.area->context);
        const device::StreamHandle all[] = {streams_.inside.handle(), streams_.inputs.handle(),
                                            streams_.outputs.handle()};
        for (std::size_t s = 0; s < std::size(all); ++s) {
            if (e_.last[s].record(all[s])) device::wait_a_while(e_.last[s]);
        }
    }

    void end() {
        r_.stages->finished();
        phase_ = Phase::idle;
        under_way_ = false;
    }

    Poll failed(const Error& error) {
        failure_ = {error, {}};
        return failure_;
    }

    const TiledRequest r_;
    const std::unique_ptr<Wires> w_;
    const device::PinnedBuffer memory_;
    const TileStreams streams_;
    const Events e_;
    std::byte* const words_;
    std::byte* const inputs_;
    std::byte* const outputs_;
    std::vector<Item> items_;             // in the order in which they are launched
    std::vector<std::size_t> part_ends_;  // of the parts of a gathered launch
    struct {
        const void* in = nullptr;
        void* out = nullptr;
        device::StreamHandle stream = nullptr;
    } callers_;
    uint32_t base_ = 0;  // the words' value at the end of the run
    device::HealthLook health_;
    Phase phase_ = Phase::idle;
    bool under_way_ = false;
    Tag tag_;
    Failure failure_;
};

Result<Events> make_all_events(const device::Context& context, uint32_t slots) {
    TUTTI_ASSIGN(device::DeviceEvent ready, device::DeviceEvent::create(context));
    TUTTI_ASSIGN(device::DeviceEvent finished, device::DeviceEvent::create(context));
    TUTTI_ASSIGN(auto before, make_events(context, slots));
    TUTTI_ASSIGN(auto fetched, make_events(context, slots));
    TUTTI_ASSIGN(auto stored, make_events(context, slots));
    TUTTI_ASSIGN(auto after, make_events(context, slots));
    TUTTI_ASSIGN(auto last, make_events(context, 3));
    return Events{std::move(ready),  std::move(finished), std::move(before), std::move(fetched),
                  std::move(stored), std::move(after),    std::move(last)};
}

}  // namespace

Result<std::unique_ptr<DeviceOperation>> tile(TiledRequest request) {
    const device::Context& context = request.area->context;
    auto wires = std::make_unique<Wires>(std::move(request.wires), request.element_bytes);
    const std::size_t slots = slots_bytes(request, *wires);
    const std::size_t bytes = slots + tile_words * no_share_bytes;
    TUTTI_ASSIGN(device::PinnedBuffer memory, device::PinnedBuffer::allocate(context, bytes));
    std::memset(memory.data() + slots, 0, tile_words * no_share_bytes);
    TUTTI_ASSIGN(device::DeviceStream inside, device::DeviceStream::create(context));
    TUTTI_ASSIGN(device::DeviceStream inputs, device::DeviceStream::create(context));
    TUTTI_ASSIGN(device::DeviceStream outputs, device::DeviceStream::create(context));
    TUTTI_ASSIGN(Events events, make_all_events(context, wires->slots()));
    return std::make_unique<TiledOperation>(
        std::move(request), std::move(wires), std::move(memory),
        TileStreams{std::move(inside), std::move(inputs), std::move(outputs)}, std::move(events));
}

}  // namespace tutti
