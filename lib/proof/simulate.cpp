#include "proof/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "proof/simulator.h"

namespace tutti::sim {

// ---- before the clock starts -------------------------------------------------------------------

void Simulator::load() {
    ranks_.resize(static_cast<std::size_t>(r_.ranks));
    report_.ranks.resize(ranks_.size());
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        const Schedule schedule = r_.schedule(rank);
        auto& lanes = ranks_[static_cast<std::size_t>(rank)].lanes;
        lanes.resize(schedule.lanes.size());
        for (uint32_t l = 0; l < lanes.size(); ++l) {
            lanes[l].moves.reserve(schedule.lanes[l].size());
            for (const Step& step : schedule.lanes[l])
                lanes[l].moves.push_back(compile(rank, l, schedule, step));
            if (lanes[l].moves.empty()) lanes[l].tile = r_.data.tiles;
        }
    }
    channel_numbers_ = {};
}

Simulator::Move Simulator::compile(Rank rank, uint32_t lane, const Schedule& schedule,
                                   const Step& step) {
    const auto bytes = [&](Form form) {
        return static_cast<uint8_t>(r_.data.element_bytes[static_cast<std::size_t>(form)]);
    };
    Move move;
    if (step.recv != nobody) move.recv = channel(step.recv, rank, lane);
    if (step.send != nobody) move.send = channel(rank, step.send, lane);
    move.after = step.after;
    move.keep = step.keep;
    move.elements = r_.data.elements(schedule, step, 0);
    move.last_elements = r_.data.elements(schedule, step, r_.data.tiles - 1);
    move.sent_bytes = bytes(step.result);
    if (needs_pass(step)) move.work_bytes = bytes(step.result);
    return move;
}

// Whether the processor reads or writes the value. A message can arrive in its final place and be
// sent from its place; within a host, the memory link counts its one copy.
bool Simulator::needs_pass(const Step& step) const {
    if (step.reduces()) return true;
    const Form from = step.local ? step.local_form : step.in;
    const auto& bytes = r_.data.element_bytes;
    if (bytes[static_cast<std::size_t>(from)] != bytes[static_cast<std::size_t>(step.result)])
        return true;
    if (step.local && step.out && !(step.local == step.out)) return true;
    const bool scratch = step.local.space == Space::scratch || step.out.space == Space::scratch;
    return step.chunks > 1 && (scratch || r_.data.in_pieces);
}

uint32_t Simulator::channel(Rank from, Rank to, uint32_t lane) {
    const auto ranks = static_cast<uint64_t>(r_.ranks);
    const uint64_t key =
        (lane * ranks + static_cast<uint64_t>(from)) * ranks + static_cast<uint64_t>(to);
    const auto [at, fresh] =
        channel_numbers_.try_emplace(key, static_cast<uint32_t>(channels_.size()));
    if (fresh) channels_.push_back({from, to, lane, r_.network.credits, 0, 0});
    return at->second;
}

// ---- lanes and processors ----------------------------------------------------------------------

bool Simulator::can_start(const SimulatedRank& state, const SimulatedLane& lane) const {
    if (lane.tile >= r_.data.tiles) return false;
    const Move& move = lane.moves[lane.step];
    if (move.after) {
        const SimulatedLane& other = state.lanes[move.after.lane];
        if (other.tile < lane.tile || (other.tile == lane.tile && other.step <= move.after.step))
            return false;
    }
    if (move.recv != none && channels_[move.recv].arrived == channels_[move.recv].used)
        return false;
    return move.send == none || channels_[move.send].credits > 0;
}

void Simulator::wake(Rank rank) {
    const SimulatedRank& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.busy) return;
    const auto lanes = static_cast<uint32_t>(state.lanes.size());
    for (uint32_t i = 0; i < lanes; ++i) {
        const uint32_t lane = (state.current + i) % lanes;
        if (can_start(state, state.lanes[lane])) return start_step(rank, lane);
    }
}

Picoseconds Simulator::duration(const Move& move, uint64_t elements) const {
    Picoseconds time = 0;
    if (move.recv != none && !move.keep)
        time += fabric_.path(channels_[move.recv].from, channels_[move.recv].to).overhead;
    if (move.send != none)
        time += fabric_.path(channels_[move.send].from, channels_[move.send].to).overhead;
    const auto bytes = static_cast<double>(elements * move.work_bytes);
    return time + picoseconds(bytes / r_.network.reduce_bytes_per_s * 1e6);
}

void Simulator::start_step(Rank rank, uint32_t lane) {
    SimulatedRank& state = ranks_[static_cast<std::size_t>(rank)];
    const SimulatedLane& at = state.lanes[lane];
    const Move& move = at.moves[at.step];
    state.current = lane;
    state.busy = true;
    state.since = now_;
    push(now_ + duration(move, elements_of(move, at.tile)), What::step_end,
         static_cast<uint32_t>(rank));
}

void Simulator::end_step(Rank rank) {
    SimulatedRank& state = ranks_[static_cast<std::size_t>(rank)];
    SimulatedLane& lane = state.lanes[state.current];
    const Move& move = lane.moves[lane.step];
    RankTotals& totals = report_.ranks[static_cast<std::size_t>(rank)];
    totals.busy += now_ - state.since;
    totals.finished = now_;
    if (r_.record && now_ > state.since)
        report_.work.push_back({rank, state.current, state.since, now_});
    if (move.recv != none && !move.keep) {
        SimulatedChannel& from = channels_[move.recv];
        ++from.used;
        push(now_ + fabric_.path(from.from, from.to).latency, What::credit, move.recv);
    }
    if (move.send != none)
        send(move.send, elements_of(move, lane.tile) * move.sent_bytes, lane.tile);
    state.busy = false;
    if (++lane.step == lane.moves.size()) {
        lane.step = 0;
        ++lane.tile;
    }
    wake(rank);
}

// ---- messages ----------------------------------------------------------------------------------

void Simulator::send(uint32_t number, uint64_t bytes, uint32_t tile) {
    --channels_[number].credits;
    RankTotals& totals = report_.ranks[static_cast<std::size_t>(channels_[number].from)];
    ++totals.messages_sent;
    totals.bytes_sent += bytes;
    if (free_messages_.empty()) {
        free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
        messages_.emplace_back();
    }
    const uint32_t message = free_messages_.back();
    free_messages_.pop_back();
    messages_[message] = {number, 0, tile, bytes, now_, now_};
    cross_link(message);
}

// The first byte is at the next link. Messages must enter a link's queue in the order of time,
// hence an event for every link.
void Simulator::cross_link(uint32_t number) {
    SimulatedMessage& message = messages_[number];
    const SimulatedChannel& channel = channels_[message.channel];
    const NetworkPath path = fabric_.path(channel.from, channel.to);
    const auto passed = fabric_.pass(path.links[message.hop], message.bytes, {now_, message.tail});
    const Picoseconds latency = message.hop == 0 ? path.latency : 0;
    message.tail = passed.tail + latency;
    if (++message.hop < path.count)
        push(passed.head + latency, What::hop, number);
    else
        push(message.tail, What::arrival, number);
}

void Simulator::arrive(uint32_t number) {
    const SimulatedMessage message = messages_[number];
    free_messages_.push_back(number);
    SimulatedChannel& channel = channels_[message.channel];
    ++channel.arrived;
    RankTotals& totals = report_.ranks[static_cast<std::size_t>(channel.to)];
    ++totals.messages_received;
    totals.bytes_received += message.bytes;
    if (r_.record)
        report_.flights.push_back({channel.from, channel.to, channel.lane, message.tile,
                                   message.bytes, message.sent, now_});
    wake(channel.to);
}

void Simulator::run() {
    for (Rank rank = 0; rank < r_.ranks; ++rank) wake(rank);
    while (!events_.empty()) {
        const SimulatedEvent event = events_.top();
        events_.pop();
        now_ = event.at;
        switch (event.what) {
            case What::hop:
                cross_link(event.which);
                break;
            case What::arrival:
                arrive(event.which);
                break;
            case What::credit:
                ++channels_[event.which].credits;
                wake(channels_[event.which].from);
                break;
            case What::step_end:
                end_step(static_cast<Rank>(event.which));
                break;
        }
    }
}

std::string Simulator::stuck() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (std::size_t l = 0; l < ranks_[r].lanes.size(); ++l) {
            const SimulatedLane& lane = ranks_[r].lanes[l];
            if (lane.tile >= r_.data.tiles) continue;
            const Move& move = lane.moves[lane.step];
            const bool empty =
                move.recv != none && channels_[move.recv].arrived == channels_[move.recv].used;
            const std::string why =
                empty ? fmt::format("a message of rank {}", channels_[move.recv].from)
                : move.send != none && channels_[move.send].credits == 0
                    ? fmt::format("a credit of rank {}", channels_[move.send].to)
                    : fmt::format("lane {} step {}", move.after.lane, move.after.step);
            return fmt::format("rank {} lane {} step {} (tile {}) waits for {} forever", r, l,
                               lane.step, lane.tile, why);
        }
    return {};
}

Report Simulator::report() && {
    for (const RankTotals& rank : report_.ranks)
        report_.time = std::max(report_.time, rank.finished);
    report_.links = fabric_.links();
    return std::move(report_);
}

// ---- what the caller sees ----------------------------------------------------------------------

const NetworkLink& Report::busiest_link() const {
    return *std::max_element(
        links.begin(), links.end(),
        [](const NetworkLink& a, const NetworkLink& b) { return a.busy < b.busy; });
}

double Report::utilisation(const NetworkLink& link) const {
    return time == 0 ? 0 : static_cast<double>(link.busy) / static_cast<double>(time);
}

Result<Report> simulate(const SimulationRequest& request) {
    TUTTI_TRY(request.network.check(request.ranks));
    Simulator simulator(request);
    simulator.load();
    simulator.run();
    if (const std::string problem = simulator.stuck(); !problem.empty())
        return fail(Code::invalid, "the schedule deadlocks with {} credits: {}",
                    request.network.credits, problem)
            .advice("give more credits");
    return std::move(simulator).report();
}

}  // namespace tutti::sim
