#include "proof/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/words.h"

namespace tutti {
namespace {

constexpr const char* too_many_values = "makes more different values than can be numbered";

}  // namespace

void SymbolicRun::wake(Rank rank, std::size_t lane, uint32_t waits_on) {
    LaneState& state = state_of(rank).lanes[lane];
    if (state.queued || state.waits_on != waits_on || state.tile >= tiles_) return;
    state.queued = true;
    ready_.emplace_back(rank, lane);
}

// Numbers the channels of each rank and lane in the order of the peers to which it sends.
void SymbolicRun::connect() {
    struct Destinations {
        std::vector<Rank> peers;
        uint32_t first = 0;
        uint32_t to(Rank peer) const {
            const auto found = std::lower_bound(peers.begin(), peers.end(), peer);
            if (found == peers.end() || *found != peer) return SymbolicChannels::silent;
            return first + static_cast<uint32_t>(found - peers.begin());
        }
    };
    const std::size_t lanes = ranks_[0].lanes.size();
    std::vector<Destinations> outgoing(ranks_.size() * lanes);
    const auto from = [&](Rank rank, std::size_t lane) -> Destinations& {
        return outgoing[static_cast<std::size_t>(rank) * lanes + lane];
    };
    channels_ = SymbolicChannels::silent + 1;
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            Destinations& out = from(rank, lane);
            for (const Step& step : state_of(rank).schedule.lanes[lane])
                if (step.send != nobody) out.peers.push_back(step.send);
            std::sort(out.peers.begin(), out.peers.end());
            out.peers.erase(std::unique(out.peers.begin(), out.peers.end()), out.peers.end());
            out.peers.shrink_to_fit();
            out.first = channels_;
            channels_ += static_cast<uint32_t>(out.peers.size());
        }
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const Lane& steps = state_of(rank).schedule.lanes[lane];
            std::vector<Ports>& ports = state_of(rank).lanes[lane].ports;
            ports.resize(steps.size());
            for (std::size_t s = 0; s < steps.size(); ++s) {
                if (steps[s].recv != nobody) ports[s].in = from(steps[s].recv, lane).to(rank);
                if (steps[s].send != nobody) ports[s].out = from(rank, lane).to(steps[s].send);
            }
        }
}

void SymbolicRun::reset(uint32_t credits, uint32_t tiles) {
    credits_ = credits;
    tiles_ = tiles;
    problem.clear();
    deadlock = false;
    ordered = traits_of(r_.collective).reduces;
    messages = busiest = 0;
    hops = 0;
    ready_.clear();
    queues_.reset(channels_);
    chunks_sent_.assign(ranks_.size(), 0);
    right_.assign(traits_of(r_.collective).reduces ? ranks_[0].schedule.chunks : 0, {});
    for (RankState& state : ranks_) {
        state.tiles.clear();
        state.scratch.assign(state.schedule.scratch_slots, {});
        for (LaneState& lane : state.lanes) {
            std::vector<Ports> ports = std::move(lane.ports);
            lane = {};
            lane.ports = std::move(ports);
        }
    }
}

void SymbolicRun::run(uint32_t credits, uint32_t tiles) {
    reset(credits, tiles);
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = state_of(rank);
        for (std::size_t lane = 0; lane < state.lanes.size(); ++lane) {
            if (state.schedule.lanes[lane].empty()) {
                // A lane without steps still counts as having finished every tile.
                state.lanes[lane].tile = tiles_;
                for (uint32_t t = 0; t < tiles_; ++t) --tile_memory(rank, t).lanes_left;
            }
            wake(rank, lane, LaneState::nothing);
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
    // Tiles that no lane of a rank works on must have their results too.
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (auto& [tile, memory] : state_of(rank).tiles)
            if (!check_output(rank, tile, memory)) return;
    for (uint64_t sent : chunks_sent_) busiest = std::max(busiest, sent);
}

SymbolicRun::TileMemory& SymbolicRun::tile_memory(Rank rank, uint32_t tile) {
    RankState& state = state_of(rank);
    auto [found, fresh] = state.tiles.try_emplace(tile);
    TileMemory& memory = found->second;
    if (!fresh) return memory;
    memory.lanes_left = state.lanes.size();
    memory.output.resize(places_->positions());
    memory.writer.assign(places_->positions(), {no_lane, 0});
    for (uint32_t p = 0; p < places_->positions() && r_.in_place; ++p) {
        const uint32_t chunk = places_->chunk_at(rank, Space::input, p);
        if (places_->holds(rank, Space::input, chunk)) memory.output[p] = Value::input(rank, chunk);
    }
    return memory;
}

symbolic::Value& SymbolicRun::place(RankState& state, LaneState& here, const Step& step,
                                    const Region& region, uint32_t index) {
    if (region.space == Space::scratch)
        return state.scratch[region.slot + step.slots.offset(index)];
    const uint32_t chunk = state.schedule.chunk_at(region.chunk, index);
    return here.memory->output[places_->position(region.space, chunk)];
}

bool SymbolicRun::take_local(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                             Value& value) {
    RankState& state = state_of(rank);
    const uint32_t chunk = state.schedule.chunk_at(step.local.chunk, index);
    const bool own_memory = step.local.space == Space::input && !r_.in_place;
    value = own_memory ? Value::input(rank, chunk)
                       : place(state, state.lanes[lane], step, step.local, index);
    if (!value.defined()) return complain(rank, lane, "reads what was not written yet");
    if (chunk != any_chunk && value.chunk() != chunk)
        return complain(rank, lane,
                        fmt::format("reads chunk {} where chunk {} lies", chunk, value.chunk()));
    if (value.form() != step.local_form)
        return complain(rank, lane,
                        fmt::format("takes its local value for {}, it is {}",
                                    form_name(step.local_form), form_name(value.form())));
    return true;
}

bool SymbolicRun::value_of(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                           const Value* arrived, uint32_t guess, Value& value) {
    Value local;
    if (step.local && !take_local(rank, lane, step, index, local)) return false;
    if (!arrived) {
        value = values_.convert(local, step.result, guess);
        return value.defined() || complain(rank, lane, too_many_values);
    }
    const Value got = *arrived;
    const uint32_t chunk = state_of(rank).schedule.chunk_at(step.extent().chunk, index);
    if (chunk != any_chunk && got.chunk() != chunk)
        return complain(rank, lane,
                        fmt::format("gets chunk {} where it expects chunk {}", got.chunk(), chunk));
    if (got.form() != step.in)
        return complain(
            rank, lane,
            fmt::format("expects {}, gets {}", form_name(step.in), form_name(got.form())));
    value = !step.local        ? values_.convert(got, step.result, guess)
            : step.local_first ? values_.combine(local, got, step.result, guess)
                               : values_.combine(got, local, step.result, guess);
    return value.defined() || complain(rank, lane, too_many_values);
}

void SymbolicRun::store(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                        Value value) {
    RankState& state = state_of(rank);
    LaneState& here = state.lanes[lane];
    place(state, here, step, step.out, index) = value;
    if (step.out.space != Space::output) return;
    const uint32_t chunk = state.schedule.chunk_at(step.out.chunk, index);
    if (value.chunk() != chunk)
        complain(rank, lane,
                 fmt::format("stores chunk {} where chunk {} belongs", value.chunk(), chunk));
    here.memory->writer[places_->position(Space::output, chunk)] = {static_cast<uint32_t>(lane),
                                                                    here.step};
}

bool SymbolicRun::waits(RankState& state, LaneState& here, const Step& step) {
    here.waits_on = LaneState::nothing;
    if (step.after) {
        const LaneState& other = state.lanes[step.after.lane];
        if (other.tile < here.tile || (other.tile == here.tile && other.step <= step.after.step))
            here.waits_on = LaneState::another_lane;
        else if (here.tile == 0)
            here.depth = std::max(here.depth, other.depths[step.after.step]);
    }
    const uint32_t in = here.ports[here.step].in, out = here.ports[here.step].out;
    if (here.waits_on != LaneState::nothing) return true;
    if (in != Ports::none && queues_.waiting(in) == 0)
        here.waits_on = in;
    else if (out != Ports::none && queues_.waiting(out) >= credits_)
        here.waits_on = out;
    return here.waits_on != LaneState::nothing;
}

bool SymbolicRun::move(Rank rank, std::size_t lane, const Step& step,
                       SymbolicChannels::SymbolicMessage* arrived,
                       SymbolicChannels::SymbolicMessage* sent) {
    const LaneState& here = state_of(rank).lanes[lane];
    uint32_t& made = state_of(rank).lanes[lane].ports[here.step].made;
    if (!check_forms(rank, lane, step)) return false;
    if (arrived && arrived->values().size() != step.chunks)
        return complain(
            rank, lane,
            fmt::format("expects {} chunks, gets {}", step.chunks, arrived->values().size()));
    if (arrived && arrived->tile != here.tile)
        return complain(rank, lane,
                        fmt::format("gets what rank {} sent in step {} of tile {}", step.recv,
                                    arrived->step, arrived->tile));
    for (uint32_t i = 0; i < step.chunks; ++i) {
        Value value;
        const Value* const got = arrived ? &arrived->values()[i] : nullptr;
        if (!value_of(rank, lane, step, i, got, made + i, value)) return false;
        if (i == 0 && !value.is_input()) made = value.number();
        if (step.out) store(rank, lane, step, i, value);
        if (sent) sent->values()[i] = value;
    }
    return problem.empty();
}

SymbolicRun::Outcome SymbolicRun::advance(Rank rank, std::size_t lane) {
    RankState& state = state_of(rank);
    LaneState& here = state.lanes[lane];
    if (here.tile >= tiles_) return Outcome::waiting;
    const Step& step = state.schedule.lanes[lane][here.step];
    if (waits(state, here, step)) return Outcome::waiting;
    if (!here.memory) here.memory = &tile_memory(rank, here.tile);

    const uint32_t in = here.ports[here.step].in, out = here.ports[here.step].out;
    SymbolicChannels::SymbolicMessage* const arrived =
        in == Ports::none ? nullptr : &queues_.front(in);
    SymbolicChannels::SymbolicMessage* const sent =
        out == Ports::none ? nullptr : &queues_.push(out, step.chunks);
    if (!move(rank, lane, step, arrived, sent)) return Outcome::failed;
    if (arrived) {
        here.depth = std::max(here.depth, arrived->depth + 1);
        if (!step.keep) {
            queues_.pop(in);
            wake(step.recv, lane, in);
        }
    }
    if (sent) {
        sent->depth = here.depth;
        sent->step = here.step;
        sent->tile = here.tile;
        messages += here.tile == 0;
        chunks_sent_[static_cast<std::size_t>(rank)] += here.tile == 0 ? step.chunks : 0;
        wake(step.send, lane, out);
    }
    finish_step(rank, lane);
    return problem.empty() ? Outcome::advanced : Outcome::failed;
}

void SymbolicRun::finish_step(Rank rank, std::size_t lane) {
    RankState& state = state_of(rank);
    LaneState& here = state.lanes[lane];
    for (std::size_t other = 0; state.joined && other < state.lanes.size(); ++other)
        wake(rank, other, LaneState::another_lane);
    if (here.tile == 0 && state.joined) here.depths.push_back(here.depth);
    if (++here.step < state.schedule.lanes[lane].size()) return;
    if (here.tile == 0) hops = std::max(hops, here.depth);
    if (--here.memory->lanes_left == 0 && check_output(rank, here.tile, *here.memory))
        state.tiles.erase(here.tile);
    here.memory = nullptr;
    here.step = 0;
    ++here.tile;
}

bool SymbolicRun::check_output(Rank rank, uint32_t tile, const TileMemory& memory) {
    if (r_.collective == Collective::barrier && r_.ranks == 1) return true;
    for (uint32_t p = 0; p < memory.output.size(); ++p) {
        const uint32_t chunk = places_->chunk_at(rank, Space::output, p);
        if (!places_->holds(rank, Space::output, chunk)) continue;
        const std::string wrong = fault(rank, chunk, memory.output[p]);
        if (wrong.empty()) continue;
        const auto [lane, step] = memory.writer[p];
        problem = lane == no_lane ? fmt::format("rank {} (tile {}): no step stores output[{}]: {}",
                                                rank, tile, chunk, wrong)
                                  : fmt::format("rank {} lane {} step {} (tile {}): output[{}] {}",
                                                rank, lane, step, tile, chunk, wrong);
        return false;
    }
    return true;
}

// Checks a result that all ranks share once: after that an equal word is the same correct value.
std::string SymbolicRun::fault(Rank rank, uint32_t chunk, Value value) {
    if (right_.empty()) return expect_->fault(rank, chunk, value);
    const bool shared = r_.collective == Collective::allreduce;
    Value& right = right_[chunk];
    if (shared && value.defined() && right == value) return {};
    std::string wrong = expect_->fault(rank, chunk, value);
    if (!wrong.empty()) return wrong;
    if (shared && right.defined())
        return "was computed in another order than on other ranks: its bits may differ";
    right = value;
    ordered &= expect_->in_rank_order(rank, value);
    return {};
}

}  // namespace tutti
