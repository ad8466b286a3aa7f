#include "schedule/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "schedule/conflicts.h"
#include "schedule/symbolic.h"
#include "schedule/words.h"

namespace tutti {
namespace {

using symbolic::Contributions;
using symbolic::Value;

struct Message {
    std::vector<Value> values;
    uint32_t depth = 0;
    uint32_t step = 0, tile = 0;  // where the sender sent it
};

struct Channel {
    std::deque<Message> messages;
    uint64_t sent = 0, released = 0;
};

struct LaneState {
    uint32_t tile = 0, step = 0;
    uint32_t depth = 0;  // longest chain of messages so far
    bool queued = false;
};

// A rank's memory of one tile; freed when all its lanes have left the tile and it was checked.
struct TileMemory {
    std::vector<Value> output;
    std::vector<std::pair<uint32_t, uint32_t>> writer;  // lane and step that stored each chunk
    std::size_t lanes_left = 0;
};

struct RankState {
    Schedule schedule;
    std::vector<LaneState> lanes;
    std::vector<Value> scratch;
    std::map<uint32_t, TileMemory> tiles;
};

/// One run with a given number of credits.
class Run {
public:
    Run(const VerifyRequest& request, uint32_t credits, uint32_t tiles)
        : r_(request), credits_(credits), tiles_(tiles) {}

    bool load(const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes);
    void run();

    std::string problem;
    bool deadlock = false;
    uint64_t messages = 0, busiest = 0;
    uint32_t hops = 0;

private:
    enum class Outcome : uint8_t { advanced, waiting, failed };
    std::string at(Rank rank, std::size_t lane) const;
    bool complain(Rank rank, std::size_t lane, const std::string& what);
    bool check_shape(Rank rank);
    bool check_step(Rank rank, std::size_t lane, const Step& step);
    Outcome advance(Rank rank, std::size_t lane);
    bool value_of(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                  const Message* arrived, Value& value);
    bool take_local(Rank rank, std::size_t lane, const Step& step, uint32_t index, Value& value);
    bool check_forms(Rank rank, std::size_t lane, const Step& step);
    Value* place(RankState& state, const Region& region, uint32_t index, uint32_t tile);
    TileMemory& tile_memory(Rank rank, uint32_t tile);
    void finish_step(Rank rank, std::size_t lane);
    bool check_output(Rank rank, uint32_t tile, const TileMemory& memory);
    std::string culprit(const Contributions& held, uint32_t chunk) const;
    std::string waits_for(Rank rank, std::size_t lane);
    void wake(Rank rank, std::size_t lane);
    void explain_deadlock();
    bool done(Rank rank, std::size_t lane) const {
        return ranks_[static_cast<std::size_t>(rank)].lanes[lane].tile >= tiles_;
    }
    Channel& channel(Rank from, Rank to, std::size_t lane) {
        return channels_[{static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to), lane}];
    }

    const VerifyRequest& r_;
    const uint32_t credits_, tiles_;
    std::vector<RankState> ranks_;
    std::map<std::pair<uint64_t, std::size_t>, Channel> channels_;
    std::deque<std::pair<Rank, std::size_t>> ready_;
    std::vector<Contributions> expected_;                     // per chunk, all ranks together
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> bits_;  // per (tile, chunk): every rank's
    std::vector<uint64_t> chunks_sent_;
};

std::string Run::at(Rank rank, std::size_t lane) const {
    const LaneState& state = ranks_[static_cast<std::size_t>(rank)].lanes[lane];
    return fmt::format("rank {} lane {} step {} (tile {})", rank, lane, state.step, state.tile);
}

bool Run::complain(Rank rank, std::size_t lane, const std::string& what) {
    const RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const Step& step = state.schedule.lanes[lane][state.lanes[lane].step];
    problem = fmt::format("{}: {}: {}", at(rank, lane), what, describe(step));
    return false;
}

bool Run::load(const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes) {
    ranks_.resize(static_cast<std::size_t>(r_.ranks));
    chunks_sent_.resize(ranks_.size());
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = ranks_[static_cast<std::size_t>(rank)];
        state.schedule = make({r_.ranks, rank, r_.root, lanes});
        state.lanes.resize(state.schedule.lanes.size());
        state.scratch.resize(state.schedule.scratch_slots);
        if (!check_shape(rank)) return false;
    }
    expected_.resize(ranks_[0].schedule.chunks);
    for (uint32_t c = 0; c < expected_.size(); ++c)
        for (Rank rank = 0; rank < r_.ranks; ++rank) expected_[c] += Contributions::of(rank, c);
    return true;
}

bool Run::check_shape(Rank rank) {
    const RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const Schedule& first = ranks_[0].schedule;
    if (state.schedule.chunks != first.chunks ||
        state.schedule.lanes.size() != first.lanes.size()) {
        problem = fmt::format("rank {} has {} chunks and {} lanes, rank 0 {} and {}", rank,
                              state.schedule.chunks, state.schedule.lanes.size(), first.chunks,
                              first.lanes.size());
        return false;
    }
    if (state.lanes.empty() || state.schedule.chunks == 0) {
        problem = fmt::format("rank {} has {} lanes and {} chunks, it needs one of each", rank,
                              state.lanes.size(), state.schedule.chunks);
        return false;
    }
    for (std::size_t lane = 0; lane < state.lanes.size(); ++lane) {
        LaneState& position = ranks_[static_cast<std::size_t>(rank)].lanes[lane];
        for (const Step& step : state.schedule.lanes[lane]) {
            if (!check_step(rank, lane, step)) return false;
            ++position.step;
        }
        position.step = 0;
    }
    problem = find_conflict(state.schedule, r_.in_place);
    if (!problem.empty()) problem = fmt::format("rank {} {}", rank, problem);
    return problem.empty();
}

bool Run::check_step(Rank rank, std::size_t lane, const Step& step) {
    const Schedule& s = ranks_[static_cast<std::size_t>(rank)].schedule;
    for (Rank peer : {step.recv, step.send})
        if (peer != nobody && (peer < 0 || peer >= r_.ranks || peer == rank))
            return complain(rank, lane, fmt::format("{} is no peer", peer));
    if (!step.local && !step.out) return complain(rank, lane, "has no local and no out: no size");
    if (step.recv == nobody && !step.local) return complain(rank, lane, "has no value");
    if (step.chunks == 0) return complain(rank, lane, "is of no chunks");
    if (step.out.space == Space::input) return complain(rank, lane, "overwrites the input");
    if (step.local && step.out && step.local.chunk != step.out.chunk)
        return complain(rank, lane, "moves a chunk to another chunk's place");
    for (const Region& region : {step.local, step.out}) {
        if (!region) continue;
        const auto fits = [&](uint32_t from, uint32_t limit) {
            return step.chunks <= limit && from <= limit - step.chunks;
        };
        const bool inside = fits(region.chunk, s.chunks) &&
                            (region.space != Space::scratch || fits(region.slot, s.scratch_slots));
        if (!inside) return complain(rank, lane, "is outside the tile");
    }
    if (step.after &&
        (step.after.lane >= s.lanes.size() || step.after.step >= s.lanes[step.after.lane].size() ||
         step.after.lane == lane))
        return complain(rank, lane, "waits for a step that does not exist in another lane");
    return true;
}

void Run::wake(Rank rank, std::size_t lane) {
    LaneState& state = ranks_[static_cast<std::size_t>(rank)].lanes[lane];
    if (state.queued || state.tile >= tiles_) return;
    state.queued = true;
    ready_.emplace_back(rank, lane);
}

void Run::run() {
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = ranks_[static_cast<std::size_t>(rank)];
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
        ranks_[static_cast<std::size_t>(rank)].lanes[lane].queued = false;
        while (advance(rank, lane) == Outcome::advanced) {
        }
    }
    if (!problem.empty()) return;
    for (const RankState& state : ranks_)
        for (const LaneState& lane : state.lanes)
            if (lane.tile < tiles_) return explain_deadlock();
    for (const auto& [key, c] : channels_)
        if (!c.messages.empty()) {
            const Message& first = c.messages.front();
            problem = fmt::format(
                "rank {} lane {} step {} (tile {}): sends a message that rank {} never receives",
                key.first >> 32, key.second, first.step, first.tile,
                static_cast<uint32_t>(key.first));
            return;
        }
    // Tiles that no lane of a rank touches are still owed their results.
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (auto& [tile, memory] : ranks_[static_cast<std::size_t>(rank)].tiles)
            if (!check_output(rank, tile, memory)) return;
    for (uint64_t sent : chunks_sent_) busiest = std::max(busiest, sent);
}

TileMemory& Run::tile_memory(Rank rank, uint32_t tile) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    auto [found, fresh] = state.tiles.try_emplace(tile);
    TileMemory& memory = found->second;
    if (!fresh) return memory;
    memory.lanes_left = state.lanes.size();
    memory.output.resize(state.schedule.chunks);
    memory.writer.assign(state.schedule.chunks, {no_lane, 0});
    for (uint32_t c = 0; c < state.schedule.chunks && r_.in_place; ++c)
        memory.output[c] = Value::input(rank, c, r_.collective == Collective::barrier, r_.ranks);
    return memory;
}

Value* Run::place(RankState& state, const Region& region, uint32_t index, uint32_t tile) {
    if (region.space == Space::scratch) return &state.scratch[region.slot + index];
    return &state.tiles.at(tile).output[region.chunk + index];
}

bool Run::take_local(Rank rank, std::size_t lane, const Step& step, uint32_t index, Value& value) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const uint32_t chunk = step.local.chunk + index;
    const bool own_memory = step.local.space == Space::input && !r_.in_place;
    value = own_memory ? Value::input(rank, chunk, r_.collective == Collective::barrier, r_.ranks)
                       : *place(state, step.local, index, state.lanes[lane].tile);
    if (!value.defined) return complain(rank, lane, "reads what was not written yet");
    if (value.chunk != chunk)
        return complain(rank, lane,
                        fmt::format("reads chunk {} where chunk {} lies", chunk, value.chunk));
    if (value.form != step.local_form)
        return complain(rank, lane,
                        fmt::format("takes its local value for {}, it is {}",
                                    form_name(step.local_form), form_name(value.form)));
    return true;
}

// Which conversions a step may make: reductions yield partial or final, moves keep the form or
// round.
bool Run::check_forms(Rank rank, std::size_t lane, const Step& step) {
    if (r_.collective != Collective::allreduce) {
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
    const bool single = r_.ranks == 1 && from == Form::raw && step.result == Form::final;
    if (from != step.result && !(from == Form::partial && step.result == Form::final) && !single)
        return complain(rank, lane,
                        fmt::format("turns {} into {}", form_name(from), form_name(step.result)));
    return true;
}

bool Run::value_of(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                   const Message* arrived, Value& value) {
    Value local;
    if (step.local && !take_local(rank, lane, step, index, local)) return false;
    if (arrived) {
        const Value& got = arrived->values[index];
        const uint32_t chunk = step.extent().chunk + index;
        if (got.chunk != chunk)
            return complain(
                rank, lane,
                fmt::format("gets chunk {} where it expects chunk {}", got.chunk, chunk));
        if (got.form != step.in)
            return complain(
                rank, lane,
                fmt::format("expects {}, gets {}", form_name(step.in), form_name(got.form)));
        value = !step.local        ? symbolic::convert(got, step.result)
                : step.local_first ? symbolic::combine(local, got, step.result)
                                   : symbolic::combine(got, local, step.result);
    } else {
        value = symbolic::convert(local, step.result);
    }
    return true;
}

Run::Outcome Run::advance(Rank rank, std::size_t lane) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    LaneState& here = state.lanes[lane];
    if (here.tile >= tiles_) return Outcome::waiting;
    const Step& step = state.schedule.lanes[lane][here.step];
    if (step.after) {
        const LaneState& other = state.lanes[step.after.lane];
        if (other.tile < here.tile || (other.tile == here.tile && other.step <= step.after.step))
            return Outcome::waiting;
    }
    Channel* in = step.recv == nobody ? nullptr : &channel(step.recv, rank, lane);
    Channel* out = step.send == nobody ? nullptr : &channel(rank, step.send, lane);
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
        if (step.out) *place(state, step.out, i, here.tile) = value;
        if (step.out.space == Space::output)
            state.tiles.at(here.tile).writer[step.out.chunk + i] = {static_cast<uint32_t>(lane),
                                                                    here.step};
        if (out) message.values.push_back(std::move(value));
    }
    if (in) {
        here.depth = std::max(here.depth, arrived->depth + 1);
        in->messages.pop_front();
        ++in->released;
        wake(step.recv, lane);
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
    finish_step(rank, lane);
    return problem.empty() ? Outcome::advanced : Outcome::failed;
}

void Run::finish_step(Rank rank, std::size_t lane) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    LaneState& here = state.lanes[lane];
    for (std::size_t other = 0; other < state.lanes.size(); ++other)
        if (other != lane) wake(rank, other);
    if (++here.step < state.schedule.lanes[lane].size()) return;
    if (here.tile == 0) hops = std::max(hops, here.depth);
    TileMemory& memory = tile_memory(rank, here.tile);
    if (--memory.lanes_left == 0 && check_output(rank, here.tile, memory))
        state.tiles.erase(here.tile);
    here.step = 0;
    ++here.tile;
}

// One rank missing or counted twice is by far the likeliest slip, and worth a name.
std::string Run::culprit(const Contributions& held, uint32_t chunk) const {
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        Contributions more = held, full = expected_[chunk];
        more += Contributions::of(rank, chunk);
        full += Contributions::of(rank, chunk);
        if (more == expected_[chunk]) return fmt::format(": rank {}'s is missing", rank);
        if (held == full) return fmt::format(": rank {}'s is there twice", rank);
    }
    return {};
}

bool Run::check_output(Rank rank, uint32_t tile, const TileMemory& memory) {
    const auto wrong = [&](uint32_t chunk, const std::string& what) {
        const auto [lane, step] = memory.writer[chunk];
        problem = lane == no_lane ? fmt::format("rank {} (tile {}): no step stores output[{}]: {}",
                                                rank, tile, chunk, what)
                                  : fmt::format("rank {} lane {} step {} (tile {}): output[{}] {}",
                                                rank, lane, step, tile, chunk, what);
        return false;
    };
    if (r_.collective == Collective::barrier && r_.ranks == 1) return true;
    for (uint32_t c = 0; c < memory.output.size(); ++c) {
        const Value& value = memory.output[c];
        if (!value.defined) return wrong(c, "it is never written");
        switch (r_.collective) {
            case Collective::allreduce: {
                if (value.form != Form::final)
                    return wrong(c, fmt::format("is {}, not final", form_name(value.form)));
                if (value.from != expected_[c])
                    return wrong(c, fmt::format("does not hold every rank's contribution exactly "
                                                "once{}",
                                                culprit(value.from, c)));
                const auto [first, fresh] = bits_.try_emplace({tile, c}, value.bits);
                if (!fresh && first->second != value.bits)
                    return wrong(
                        c,
                        "was computed in another order than on other ranks: its bits may differ");
                break;
            }
            case Collective::broadcast:
                if (value.from != Contributions::of(r_.root, c))
                    return wrong(c, "is not the root's");
                break;
            case Collective::barrier:
                for (Rank other = 0; other < r_.ranks; ++other)
                    if (!(value.known[static_cast<std::size_t>(other) / 64] >> (other % 64) & 1))
                        return wrong(c,
                                     fmt::format("leaves without having heard of rank {}", other));
                break;
        }
    }
    return true;
}

// In the order in which advance() asks. A lane that waits for one that has finished comes first:
// that is where the fault lies, the others only wait for it.
std::string Run::waits_for(Rank rank, std::size_t lane) {
    const RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const LaneState& here = state.lanes[lane];
    const Step& step = state.schedule.lanes[lane][here.step];
    if (step.after) {
        const LaneState& other = state.lanes[step.after.lane];
        if (other.tile < here.tile || (other.tile == here.tile && other.step <= step.after.step))
            return fmt::format("its lane {} step {}", step.after.lane, step.after.step);
    }
    if (step.recv != nobody && channel(step.recv, rank, lane).messages.empty())
        return fmt::format("a message from rank {}{}", step.recv,
                           done(step.recv, lane) ? ", which has finished" : "");
    return fmt::format("a credit of rank {}{}", step.send,
                       done(step.send, lane) ? ", which has finished" : "");
}

void Run::explain_deadlock() {
    deadlock = true;
    std::vector<std::string> stuck;
    std::size_t roots = 0;
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (std::size_t lane = 0; lane < ranks_[static_cast<std::size_t>(rank)].lanes.size();
             ++lane) {
            if (done(rank, lane)) continue;
            stuck.push_back(fmt::format("{} waits for {}", at(rank, lane), waits_for(rank, lane)));
            if (stuck.back().ends_with("finished")) std::swap(stuck[roots++], stuck.back());
        }
    const std::size_t named = std::min<std::size_t>(stuck.size(), 4);
    problem = fmt::format("deadlock: {}", fmt::join(stuck.begin(), stuck.begin() + named, "; "));
    if (stuck.size() > named) problem += fmt::format("; and {} more lanes", stuck.size() - named);
}

}  // namespace

Verdict verify(const VerifyRequest& asked,
               const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes) {
    VerifyRequest request = asked;
    request.in_place |= asked.collective == Collective::broadcast;
    Verdict verdict;
    for (uint32_t credits = 1; credits <= request.max_credits; ++credits) {
        Run run(request, credits, request.tiles ? request.tiles : credits + 2);
        if (run.load(make, lanes)) run.run();
        verdict.problem = run.problem;
        if (run.deadlock) continue;
        verdict.ok = run.problem.empty();
        verdict.credits = credits;
        verdict.messages = run.messages;
        verdict.busiest_chunks = run.busiest;
        verdict.hops = run.hops;
        return verdict;
    }
    return verdict;
}

}  // namespace tutti
