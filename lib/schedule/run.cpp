#include "schedule/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/conflicts.h"
#include "schedule/words.h"

namespace tutti {

// ---- each rank's schedule on its own -----------------------------------------------------------

bool Run::load(const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes) {
    ranks_.resize(static_cast<std::size_t>(r_.ranks));
    chunks_sent_.resize(ranks_.size());
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = state_of(rank);
        state.schedule = make({r_.ranks, rank, r_.root, lanes, r_.in_place, r_.hosts});
        state.lanes.resize(state.schedule.lanes.size());
        state.scratch.resize(state.schedule.scratch_slots);
        if (rank == 0)
            places_ =
                std::make_unique<Places>(r_.collective, r_.ranks, r_.root, state.schedule.chunks);
        if (!check_shape(rank)) return false;
    }
    expect_ = std::make_unique<Expectations>(r_, *places_, ranks_[0].schedule.chunks);
    return true;
}

bool Run::check_shape(Rank rank) {
    RankState& state = state_of(rank);
    const Schedule& first = ranks_[0].schedule;
    if (state.schedule.chunks != first.chunks || state.schedule.cycle != first.cycle ||
        state.schedule.lanes.size() != first.lanes.size()) {
        problem = fmt::format("rank {} has {} chunks and {} lanes, rank 0 {} and {}", rank,
                              state.schedule.chunks, state.schedule.lanes.size(), first.chunks,
                              first.lanes.size());
        return false;
    }
    if (state.schedule.longest_run != first.longest_run) {
        problem = fmt::format("rank {} has runs of up to {} chunks, rank 0 of {}", rank,
                              state.schedule.longest_run, first.longest_run);
        return false;
    }
    if (state.lanes.empty() || state.schedule.chunks == 0) {
        problem = fmt::format("rank {} has {} lanes and {} chunks, it needs one of each", rank,
                              state.lanes.size(), state.schedule.chunks);
        return false;
    }
    if (first.chunks % places_->blocks() != 0 ||
        (first.cycle != 0 && first.chunks % first.cycle != 0)) {
        problem = fmt::format("rank {} cuts {} chunks into blocks of {} and cycles of {}", rank,
                              first.chunks, places_->blocks(), first.cycle);
        return false;
    }
    for (std::size_t lane = 0; lane < state.lanes.size(); ++lane) {
        LaneState& position = state.lanes[lane];
        for (const Step& step : state.schedule.lanes[lane]) {
            if (!check_step(rank, lane, step)) return false;
            ++position.step;
        }
        position.step = 0;
    }
    problem = find_conflict(state.schedule, *places_, r_.in_place);
    if (!problem.empty()) problem = fmt::format("rank {} {}", rank, problem);
    return problem.empty();
}

bool Run::check_step(Rank rank, std::size_t lane, const Step& step) {
    const Schedule& s = state_of(rank).schedule;
    for (Rank peer : {step.recv, step.send})
        if (peer != nobody && (peer < 0 || peer >= r_.ranks || peer == rank))
            return complain(rank, lane, fmt::format("{} is no peer", peer));
    if (!step.local && !step.out) return complain(rank, lane, "has no local and no out: no size");
    if (step.recv == nobody && !step.local) return complain(rank, lane, "has no value");
    if (step.recv == nobody && step.keep) return complain(rank, lane, "keeps no message");
    if (step.chunks == 0) return complain(rank, lane, "is of no chunks");
    if (step.out.space == Space::input) return complain(rank, lane, "overwrites the input");
    if (step.local && step.out && step.local.chunk != step.out.chunk &&
        step.local.chunk != any_chunk && step.out.chunk != any_chunk)
        return complain(rank, lane, "moves a chunk to another chunk's place");
    for (const Region& region : {step.local, step.out})
        if (region && !check_run(rank, lane, step, region)) return false;
    const bool travels = step.recv != nobody || step.send != nobody;
    if (travels && step.chunks > s.longest_run)
        return complain(rank, lane,
                        fmt::format("is longer than the longest run, {} chunks", s.longest_run));
    if (step.after &&
        (step.after.lane >= s.lanes.size() || step.after.step >= s.lanes[step.after.lane].size() ||
         step.after.lane == lane))
        return complain(rank, lane, "waits for a step that does not exist in another lane");
    return true;
}

bool Run::check_run(Rank rank, std::size_t lane, const Step& step, const Region& region) {
    const Schedule& s = state_of(rank).schedule;
    const bool scratch = region.space == Space::scratch;
    const bool any = region.chunk == any_chunk && scratch;
    const uint32_t longest = s.cycle != 0 ? s.cycle : s.chunks;
    bool inside = any || (region.chunk < s.chunks && step.chunks <= longest &&
                          s.chunk_at(region.chunk, step.chunks - 1) < s.chunks);
    if (scratch && inside)
        inside = step.chunks <= s.scratch_slots && region.slot < s.scratch_slots &&
                 step.slots.offset(step.chunks - 1) < s.scratch_slots - region.slot;
    if (!inside) return complain(rank, lane, "is outside the tile");
    for (uint32_t i = 0; i < step.chunks && !scratch; ++i)
        if (!places_->holds(rank, region.space, s.chunk_at(region.chunk, i)))
            return complain(rank, lane,
                            fmt::format("uses chunk {}, which its {} does not have",
                                        s.chunk_at(region.chunk, i),
                                        region.space == Space::input ? "input" : "output"));
    return true;
}

// Which conversions a step may make: reductions yield partial or final; moves never go back to a
// form that holds less.
bool Run::check_forms(Rank rank, std::size_t lane, const Step& step) {
    if (!traits_of(r_.collective).reduces) {
        const bool raw =
            step.in == Form::raw && step.local_form == Form::raw && step.result == Form::raw;
        return raw || complain(rank, lane, "nothing is reduced, so everything must be raw");
    }
    if (step.reduces()) {
        if (step.in == Form::final || step.local_form == Form::final || step.result == Form::raw)
            return complain(rank, lane, "reduces a finished value, or to a raw one");
        return true;
    }
    const Form from = step.local ? step.local_form : step.in;
    if (from > step.result)
        return complain(rank, lane,
                        fmt::format("turns {} into {}", form_name(from), form_name(step.result)));
    return true;
}

// ---- all together ------------------------------------------------------------------------------

void Run::wake(Rank rank, std::size_t lane) {
    LaneState& state = state_of(rank).lanes[lane];
    if (state.queued || state.tile >= tiles_) return;
    state.queued = true;
    ready_.emplace_back(rank, lane);
}

void Run::connect() {
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = state_of(rank);
        for (std::size_t lane = 0; lane < state.lanes.size(); ++lane)
            for (const Step& step : state.schedule.lanes[lane])
                state.lanes[lane].ports.push_back(
                    {step.recv == nobody ? nullptr : &channel(step.recv, rank, lane),
                     step.send == nobody ? nullptr : &channel(rank, step.send, lane)});
    }
}

void Run::run() {
    connect();
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = state_of(rank);
        for (std::size_t lane = 0; lane < state.lanes.size(); ++lane) {
            if (state.schedule.lanes[lane].empty()) {
                // A lane without steps still counts as having finished every tile.
                state.lanes[lane].tile = tiles_;
                for (uint32_t t = 0; t < tiles_; ++t) --tile_memory(rank, t).lanes_left;
            }
            wake(rank, lane);
        }
    }
    while (!ready_.empty() && problem.empty()) {
        const auto [rank, lane] = ready_.front();
        ready_.pop_front();
        state_of(rank).lanes[lane].queued = false;
        while (advance(rank, lane) == Outcome::advanced) {
        }
    }
    if (!problem.empty()) return;
    for (const RankState& state : ranks_)
        for (const LaneState& lane : state.lanes)
            if (lane.tile < tiles_) return explain_deadlock();
    if (find_unreceived()) return;
    // Tiles that no lane of a rank touches are still owed their results.
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (auto& [tile, memory] : state_of(rank).tiles)
            if (!check_output(rank, tile, memory)) return;
    for (uint64_t sent : chunks_sent_) busiest = std::max(busiest, sent);
}

Run::TileMemory& Run::tile_memory(Rank rank, uint32_t tile) {
    RankState& state = state_of(rank);
    auto [found, fresh] = state.tiles.try_emplace(tile);
    TileMemory& memory = found->second;
    if (!fresh) return memory;
    memory.lanes_left = state.lanes.size();
    memory.output.resize(places_->positions());
    memory.writer.assign(places_->positions(), {no_lane, 0});
    for (uint32_t p = 0; p < places_->positions() && r_.in_place; ++p) {
        const uint32_t chunk = places_->chunk_at(rank, Space::input, p);
        if (places_->holds(rank, Space::input, chunk))
            memory.output[p] = expect_->input(rank, chunk);
    }
    return memory;
}

symbolic::Value& Run::place(RankState& state, const Step& step, const Region& region,
                            uint32_t index, uint32_t tile) {
    if (region.space == Space::scratch)
        return state.scratch[region.slot + step.slots.offset(index)];
    const uint32_t chunk = state.schedule.chunk_at(region.chunk, index);
    return state.tiles.at(tile).output[places_->position(region.space, chunk)];
}

bool Run::take_local(Rank rank, std::size_t lane, const Step& step, uint32_t index, Value& value) {
    RankState& state = state_of(rank);
    const uint32_t chunk = state.schedule.chunk_at(step.local.chunk, index);
    const bool own_memory = step.local.space == Space::input && !r_.in_place;
    value = own_memory ? expect_->input(rank, chunk)
                       : place(state, step, step.local, index, state.lanes[lane].tile);
    if (!value.defined) return complain(rank, lane, "reads what was not written yet");
    if (chunk != any_chunk && value.chunk != chunk)
        return complain(rank, lane,
                        fmt::format("reads chunk {} where chunk {} lies", chunk, value.chunk));
    if (value.form != step.local_form)
        return complain(rank, lane,
                        fmt::format("takes its local value for {}, it is {}",
                                    form_name(step.local_form), form_name(value.form)));
    return true;
}

bool Run::value_of(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                   const Message* arrived, Value& value) {
    Value local;
    if (step.local && !take_local(rank, lane, step, index, local)) return false;
    if (!arrived) {
        value = symbolic::convert(local, step.result);
        return true;
    }
    const Value& got = arrived->values[index];
    const uint32_t chunk = state_of(rank).schedule.chunk_at(step.extent().chunk, index);
    if (chunk != any_chunk && got.chunk != chunk)
        return complain(rank, lane,
                        fmt::format("gets chunk {} where it expects chunk {}", got.chunk, chunk));
    if (got.form != step.in)
        return complain(
            rank, lane,
            fmt::format("expects {}, gets {}", form_name(step.in), form_name(got.form)));
    value = !step.local        ? symbolic::convert(got, step.result)
            : step.local_first ? symbolic::combine(local, got, step.result)
                               : symbolic::combine(got, local, step.result);
    return true;
}

void Run::store(Rank rank, std::size_t lane, const Step& step, uint32_t index, const Value& value) {
    RankState& state = state_of(rank);
    const LaneState& here = state.lanes[lane];
    place(state, step, step.out, index, here.tile) = value;
    if (step.out.space != Space::output) return;
    const uint32_t chunk = state.schedule.chunk_at(step.out.chunk, index);
    if (value.chunk != chunk)
        complain(rank, lane,
                 fmt::format("stores chunk {} where chunk {} belongs", value.chunk, chunk));
    state.tiles.at(here.tile).writer[places_->position(Space::output, chunk)] = {
        static_cast<uint32_t>(lane), here.step};
}

Run::Outcome Run::advance(Rank rank, std::size_t lane) {
    RankState& state = state_of(rank);
    LaneState& here = state.lanes[lane];
    if (here.tile >= tiles_) return Outcome::waiting;
    const Step& step = state.schedule.lanes[lane][here.step];
    if (step.after) {
        const LaneState& other = state.lanes[step.after.lane];
        if (other.tile < here.tile || (other.tile == here.tile && other.step <= step.after.step))
            return Outcome::waiting;
        if (here.tile == 0) here.depth = std::max(here.depth, other.depths[step.after.step]);
    }
    const auto [in, out] = here.ports[here.step];
    if (in && in->messages.empty()) return Outcome::waiting;
    if (out && out->sent - out->released >= credits_) return Outcome::waiting;

    tile_memory(rank, here.tile);
    if (!check_forms(rank, lane, step)) return Outcome::failed;
    const Message* arrived = in ? &in->messages.front() : nullptr;
    if (arrived && arrived->values.size() != step.chunks) {
        complain(rank, lane,
                 fmt::format("expects {} chunks, gets {}", step.chunks, arrived->values.size()));
        return Outcome::failed;
    }
    Message message;
    for (uint32_t i = 0; i < step.chunks; ++i) {
        Value value;
        if (!value_of(rank, lane, step, i, arrived, value)) return Outcome::failed;
        if (step.out) store(rank, lane, step, i, value);
        if (out) message.values.push_back(std::move(value));
    }
    if (in) {
        here.depth = std::max(here.depth, arrived->depth + 1);
        if (!step.keep) {
            in->messages.erase(in->messages.begin());
            ++in->released;
            wake(step.recv, lane);
        }
    }
    if (out) {
        message.depth = here.depth;
        message.step = here.step;
        message.tile = here.tile;
        out->messages.push_back(std::move(message));
        ++out->sent;
        messages += here.tile == 0;
        chunks_sent_[static_cast<std::size_t>(rank)] += here.tile == 0 ? step.chunks : 0;
        wake(step.send, lane);
    }
    if (problem.empty()) finish_step(rank, lane);
    return problem.empty() ? Outcome::advanced : Outcome::failed;
}

void Run::finish_step(Rank rank, std::size_t lane) {
    RankState& state = state_of(rank);
    LaneState& here = state.lanes[lane];
    for (std::size_t other = 0; other < state.lanes.size(); ++other)
        if (other != lane) wake(rank, other);
    if (here.tile == 0) here.depths.push_back(here.depth);
    if (++here.step < state.schedule.lanes[lane].size()) return;
    if (here.tile == 0) hops = std::max(hops, here.depth);
    TileMemory& memory = tile_memory(rank, here.tile);
    if (--memory.lanes_left == 0 && check_output(rank, here.tile, memory))
        state.tiles.erase(here.tile);
    here.step = 0;
    ++here.tile;
}

bool Run::check_output(Rank rank, uint32_t tile, const TileMemory& memory) {
    if (r_.collective == Collective::barrier && r_.ranks == 1) return true;
    for (uint32_t p = 0; p < memory.output.size(); ++p) {
        const uint32_t chunk = places_->chunk_at(rank, Space::output, p);
        if (!places_->holds(rank, Space::output, chunk)) continue;
        const Value& value = memory.output[p];
        std::string fault = expect_->fault(rank, chunk, value);
        if (fault.empty() && r_.collective == Collective::allreduce) {
            const auto [first, fresh] = bits_.try_emplace({tile, chunk}, value.bits);
            if (!fresh && first->second != value.bits)
                fault = "was computed in another order than on other ranks: its bits may differ";
        }
        if (!fault.empty()) {
            const auto [lane, step] = memory.writer[p];
            problem = lane == no_lane
                          ? fmt::format("rank {} (tile {}): no step stores output[{}]: {}", rank,
                                        tile, chunk, fault)
                          : fmt::format("rank {} lane {} step {} (tile {}): output[{}] {}", rank,
                                        lane, step, tile, chunk, fault);
            return false;
        }
        ordered &= expect_->in_rank_order(rank, value);
    }
    return true;
}

}  // namespace tutti
