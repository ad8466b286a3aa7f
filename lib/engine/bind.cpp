#include "engine/bind.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr Width width_of(Form form) {
    switch (form) {
        case Form::raw:
            return Width::raw;
        case Form::partial:
            return Width::partial;
        case Form::final:
            return Width::final;
    }
    return Width::raw;
}

bool is_push(const BoundStep& step) {
    return step.send && !step.build;
}

// The span of positions (or slots) that a region's run may use. Wider than needed if the run wraps
// around or has gaps: then a step waits for a push without need.
struct Span {
    bool scratch = false;
    uint64_t from = 0, to = 0;
    bool overlaps(const Span& other) const {
        return scratch == other.scratch && from < other.to && other.from < to;
    }
};

class Binder {
public:
    Binder(BindRequest& request, ChannelProvider& channels)
        : r_(request),
          channels_(channels),
          layout_request_(layout_request(request)),
          places_(request.collective, request.ranks, request.root, request.schedule.chunks),
          parts_{.layout = Layout(layout_request_)} {}

    Result<std::unique_ptr<BoundSchedule>> run() {
        parts_.divisor = r_.divisor;
        parts_.function = r_.reducer.function();
        parts_.tile_elements = layout_request_.tile_elements;
        parts_.in_bytes = parts_.layout.elements(Space::input) * r_.reducer.bytes(Width::raw);
        parts_.out_bytes = parts_.layout.elements(Space::output) * r_.reducer.bytes(Width::final);
        parts_.tag_by_block = r_.tag_by_block;
        for (std::size_t l = 0; l < r_.schedule.lanes.size(); ++l) {
            BoundLane lane;
            for (const Step& step : r_.schedule.lanes[l]) {
                TUTTI_ASSIGN(BoundStep bound, bind_step(step, static_cast<uint16_t>(l)));
                // The lane has peeked at this kept message, so it stays in the channel's memory.
                if (!lane.steps.empty() && lane.steps.back().keep &&
                    lane.steps.back().recv == bound.recv)
                    bound.offer = false;
                lane.steps.push_back(bound);
            }
            mark_drains(lane);
            parts_.lanes.push_back(std::move(lane));
        }
        make_scratch();
        if (r_.window.slots > 0) make_window();
        r_.schedule.lanes.clear();
        parts_.schedule = std::move(r_.schedule);
        return std::make_unique<BoundSchedule>(std::move(parts_));
    }

private:
    static LayoutRequest layout_request(const BindRequest& r) {
        LayoutRequest l;
        l.collective = r.collective;
        l.ranks = r.ranks;
        l.rank = r.rank;
        l.root = r.root;
        l.count = r.count;
        l.input = r.input;
        l.output = r.output;
        l.short_blocks_whole = r.tag_by_block;
        return cut_for(std::move(l), r.schedule, r.reducer, r.message_bytes);
    }

    Result<BoundStep> bind_step(const Step& step, uint16_t lane) {
        const auto channel = static_cast<uint16_t>(r_.first_lane + lane);
        BoundStep bound;
        bound.local = step.local;
        bound.out = step.out;
        bound.chunks = step.chunks;
        bound.slots = step.slots;
        bound.in_bytes = element_bytes(step.in);
        bound.local_bytes = element_bytes(step.local_form);
        bound.result_bytes = element_bytes(step.result);
        bound.local_first = step.local_first;
        bound.keep = step.keep;
        bound.after = step.after;
        bound.one_piece = in_one_piece(step, step.local) && in_one_piece(step, step.out);
        bound.plain = bound.one_piece && !parts_.layout.uneven();
        bound.first = place(step, 0);
        bound.last = place(step, parts_.layout.tiles() - 1);
        if (step.recv != nobody) {
            bound.recv = channels_.receiver(step.recv, channel);
            note(parts_.receivers, bound.recv);
        }
        const bool moves = !step.reduces();
        const Form from = step.local ? step.local_form : step.in;
        const bool converts = moves && width_of(from) != width_of(step.result);
        if (step.send != nobody) {
            TUTTI_ASSIGN(const OpenSender open, channels_.sender(step.send, channel, r_.deadline));
            bound.send = open.sender;
            note(parts_.senders, bound.send);
            // Sends a value that is already in memory from there, unless the channel maps the
            // peer's memory anyway, or the value is in several pieces.
            const bool in_memory = step.out || (moves && !converts && step.local);
            bound.build = open.capabilities->mapped || !in_memory || !bound.one_piece;
            bound.writer = moves && !converts ? Writer::copy : Writer::kernel;
        }
        bound.offer = moves && step.recv != nobody && step.out && !converts &&
                      !parts_.layout.empty() && bound.one_piece && !step.keep;
        bound.kernel = kernel(step, bound, from, /*stream=*/false);
        bind_streamed(step, bound, from);
        return bound;
    }

    // No streaming stores with a program's own operator: the program chooses its stores.
    void bind_streamed(const Step& step, BoundStep& bound, Form from) const {
        if (!bound.kernel || r_.reducer.function().combine) return;
        // No streaming stores to an output that a channel also sends, because the sender reads it
        // back at once.
        bound.stream_out = step.out.space == Space::output && r_.stream_bytes != 0 &&
                           parts_.out_bytes >= r_.stream_bytes && !bound.send;
        if ((bound.build && !step.out) || bound.stream_out)
            bound.streamed = kernel(step, bound, from, /*stream=*/true);
    }

    // Neighbouring chunks of a whole message are neighbours in memory; blocks and slots need not
    // be.
    bool in_one_piece(const Step& step, const Region& region) const {
        if (step.chunks == 1 || !region) return true;
        if (traits_of(r_.collective).cut != Cut::whole || region.space == Space::scratch)
            return false;
        return r_.schedule.chunk_at(region.chunk, step.chunks - 1) > region.chunk;
    }

    BoundStep::Position place(const Step& step, uint32_t tile) const {
        BoundStep::Position at;
        const auto piece = [&](const Region& region, uint32_t index) {
            return parts_.layout.piece(region.space, tile,
                                       r_.schedule.chunk_at(region.chunk, index));
        };
        if (step.local) at.local = piece(step.local, 0).offset;
        if (step.out) at.out = piece(step.out, 0).offset;
        for (uint32_t i = 0; i < step.chunks; ++i) at.count += piece(step.extent(), i).count;
        return at;
    }

    Span span(const BoundStep& step, const Region& region) const {
        if (region.space == Space::scratch)
            return {true, region.slot, region.slot + step.slots.offset(step.chunks - 1) + 1ull};
        const uint32_t last = r_.schedule.chunk_at(region.chunk, step.chunks - 1);
        const uint32_t cycle = r_.schedule.cycle;
        if (last < region.chunk)
            return {false, region.chunk / cycle * cycle, region.chunk / cycle * cycle + cycle};
        const uint64_t from = places_.position(region.space, region.chunk);
        return {false, from, from + step.chunks};
    }

    // Marks steps that overwrite memory from which an earlier step of the lane may still be
    // sending. Every tile reuses the scratch slots.
    void mark_drains(BoundLane& lane) const {
        std::vector<std::size_t> pushers;
        for (std::size_t i = 0; i < lane.steps.size(); ++i) {
            if (!is_push(lane.steps[i])) continue;
            pushers.push_back(i);
            auto& pushes = lane.pushes;
            if (std::find(pushes.begin(), pushes.end(), lane.steps[i].send) == pushes.end())
                pushes.push_back(lane.steps[i].send);
        }
        for (std::size_t i = 0; i < lane.steps.size(); ++i) {
            BoundStep& writer = lane.steps[i];
            if (!writer.out) continue;
            const Span written = span(writer, writer.out);
            writer.needs_drain = std::any_of(pushers.begin(), pushers.end(), [&](std::size_t j) {
                const BoundStep& sender = lane.steps[j];
                return (j < i || written.scratch) &&
                       written.overlaps(span(sender, sender.out ? sender.out : sender.local));
            });
        }
    }

    ReduceFn kernel(const Step& step, const BoundStep& bound, Form from, bool stream) const {
        if (parts_.layout.empty() || (!step.out && !bound.build)) return nullptr;
        const Width result = width_of(step.result);
        if (!step.reduces()) return r_.reducer.move(width_of(from), result, stream);
        const Width in = width_of(step.in), local = width_of(step.local_form);
        return step.local_first ? r_.reducer.reduce(local, in, result, stream)
                                : r_.reducer.reduce(in, local, result, stream);
    }

    uint8_t element_bytes(Form form) const {
        return static_cast<uint8_t>(r_.reducer.bytes(width_of(form)));
    }

    template <typename T>
    static void note(std::vector<T>& list, T entry) {
        if (std::find(list.begin(), list.end(), entry) == list.end()) list.push_back(entry);
    }

    void make_scratch() {
        if (r_.schedule.scratch_slots == 0) return;
        const std::size_t longest = parts_.layout.longest_chunk();
        const std::size_t widest =
            std::max(r_.reducer.bytes(Width::raw), r_.reducer.bytes(Width::partial));
        parts_.slot_bytes = round_up(std::max<std::size_t>(longest * widest, 1), cache_line_bytes);
        const std::size_t bytes = parts_.slot_bytes * r_.schedule.scratch_slots;
        parts_.scratch = r_.scratch ? r_.scratch->at_least(bytes) : WorkMemory::of_its_own(bytes);
    }

    void make_window() {
        const auto divide = [](std::size_t value, std::size_t by) { return (value + by - 1) / by; };
        const std::size_t tile_elements = layout_request_.tile_elements;
        Window& w = parts_.window;
        w.slots = r_.window.slots;
        w.count = std::max<std::size_t>(1, r_.count);
        w.in_blocks = std::max<std::size_t>(1, parts_.layout.elements(Space::input) / w.count);
        w.out_blocks = std::max<std::size_t>(1, parts_.layout.elements(Space::output) / w.count);
        const std::size_t tile_bytes =
            tile_elements * std::max(w.in_blocks, w.out_blocks) * r_.reducer.bytes(Width::raw);
        const std::size_t tiles =
            divide(r_.window.count > 0 ? r_.window.count : r_.count, tile_elements);
        w.tiles = static_cast<uint32_t>(std::max(
            {std::size_t{1}, r_.window.bytes / tile_bytes, divide(tiles, r_.window.most_fills)}));
        w.fill_elements = std::min(w.tiles * tile_elements, w.count);
        w.fills = static_cast<uint32_t>(divide(parts_.layout.tiles(), w.tiles));
        w.slots = std::min(w.slots, w.fills);
    }

    BindRequest& r_;
    ChannelProvider& channels_;
    const LayoutRequest layout_request_;
    const Places places_;
    BoundSchedule::Parts parts_;
};

}  // namespace

Result<std::unique_ptr<BoundSchedule>> bind(BindRequest request, ChannelProvider& channels) {
    return Binder(request, channels).run();
}

}  // namespace tutti
