#include "engine/bind.h"

#include <algorithm>

#include "engine/bound_schedule.h"

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

// Input chunk c and output chunk c are one memory when the call is in place; scratch slots are used
// again by every tile.
bool same_memory(const Region& a, uint32_t a_chunks, const Region& b, uint32_t b_chunks) {
    const bool a_scratch = a.space == Space::scratch;
    if (!a || !b || a_scratch != (b.space == Space::scratch)) return false;
    const uint32_t a_at = a_scratch ? a.slot : a.chunk;
    const uint32_t b_at = a_scratch ? b.slot : b.chunk;
    return a_at < b_at + b_chunks && b_at < a_at + a_chunks;
}

bool is_push(const BoundStep& step) {
    return step.send && !step.build;
}

// Steps that overwrite memory an earlier step of the lane may still be sending from.
void mark_settles(BoundLane& lane) {
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
        BoundStep& writer = lane.steps[i];
        for (std::size_t j = 0; j < lane.steps.size() && writer.out; ++j) {
            const BoundStep& sender = lane.steps[j];
            if (!is_push(sender)) continue;
            const Region& from = sender.out ? sender.out : sender.local;
            const bool earlier = j < i || writer.out.space == Space::scratch;
            if (earlier && same_memory(writer.out, writer.chunks, from, sender.chunks))
                writer.settle = true;
        }
        if (is_push(writer)) {
            auto& pushes = lane.pushes;
            if (std::find(pushes.begin(), pushes.end(), writer.send) == pushes.end())
                pushes.push_back(writer.send);
        }
    }
}

class Binder {
public:
    Binder(BindRequest& request, ChannelProvider& channels) : r_(request), channels_(channels) {}

    Result<std::unique_ptr<Operation>> run() {
        const std::size_t tile = tile_elements(r_.schedule, r_.count, r_.reducer, r_.message_bytes);
        parts_.tiles = TileMap(r_.count, tile, r_.schedule.chunks, r_.reducer.bytes(Width::raw));
        parts_.divisor = r_.divisor;
        for (std::size_t l = 0; l < r_.schedule.lanes.size(); ++l) {
            BoundLane lane;
            for (const Step& step : r_.schedule.lanes[l]) {
                TUTTI_ASSIGN(BoundStep bound, bind_step(step, static_cast<uint16_t>(l)));
                lane.steps.push_back(bound);
            }
            mark_settles(lane);
            parts_.lanes.push_back(std::move(lane));
        }
        make_scratch();
        return std::make_unique<BoundSchedule>(std::move(parts_));
    }

private:
    Result<BoundStep> bind_step(const Step& step, uint16_t lane) {
        const auto channel = static_cast<uint16_t>(r_.first_lane + lane);
        BoundStep bound;
        bound.chunk = step.extent().chunk;
        bound.chunks = step.chunks;
        bound.local = step.local;
        bound.out = step.out;
        bound.in_bytes = element_bytes(step.in);
        bound.local_bytes = element_bytes(step.local_form);
        bound.result_bytes = element_bytes(step.result);
        bound.local_first = step.local_first;
        bound.after = step.after;
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
            // Memory that holds the value already is sent from where it is, unless the channel maps
            // the peer's memory anyway.
            const bool in_memory = step.out || (moves && !converts && step.local);
            bound.build = open.capabilities->mapped || !in_memory;
        }
        bound.offer = moves && step.recv != nobody && step.out && !converts && r_.count > 0;
        bound.kernel = kernel(step, bound, from);
        return bound;
    }

    ReduceFn kernel(const Step& step, const BoundStep& bound, Form from) const {
        if (r_.count == 0 || (!step.out && !bound.build)) return nullptr;
        const bool stream = r_.stream_bytes != 0 && step.out.space == Space::output &&
                            (!bound.send || bound.build) &&
                            r_.count * r_.reducer.bytes(Width::raw) >= r_.stream_bytes;
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
        std::size_t longest = 0;
        for (uint32_t c = 0; c < r_.schedule.chunks; ++c)
            longest = std::max(longest, parts_.tiles.at(0, c + 1) - parts_.tiles.at(0, c));
        const std::size_t widest =
            std::max(r_.reducer.bytes(Width::raw), r_.reducer.bytes(Width::partial));
        parts_.slot_bytes = round_up(std::max<std::size_t>(longest * widest, 1), cache_line_bytes);
        parts_.scratch = std::make_unique_for_overwrite<std::byte[]>(parts_.slot_bytes *
                                                                     r_.schedule.scratch_slots);
    }

    BindRequest& r_;
    ChannelProvider& channels_;
    BoundSchedule::Parts parts_;
};

}  // namespace

std::size_t tile_elements(const Schedule& schedule, std::size_t count, const Reducer& reducer,
                          std::size_t message_bytes) {
    uint32_t longest_run = 1;
    for (const Lane& lane : schedule.lanes)
        for (const Step& step : lane) longest_run = std::max(longest_run, step.chunks);
    const std::size_t widest = std::max(reducer.bytes(Width::raw), reducer.bytes(Width::partial));
    std::size_t chunk = std::max<std::size_t>(1, message_bytes / widest / longest_run);
    // TileMap lets long chunks start at cache lines; a whole number of lines keeps them within.
    const std::size_t line = std::max<std::size_t>(1, cache_line_bytes / reducer.bytes(Width::raw));
    if (chunk >= 16 * line) chunk = chunk / line * line;
    return std::min(std::max<std::size_t>(count, 1), chunk * schedule.chunks);
}

Result<std::unique_ptr<Operation>> bind(BindRequest request, ChannelProvider& channels) {
    return Binder(request, channels).run();
}

}  // namespace tutti
