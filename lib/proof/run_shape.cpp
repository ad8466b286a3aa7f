// Checks of each rank's schedule on its own, before all of them run together.
#include <fmt/format.h>

#include "proof/conflicts.h"
#include "proof/run.h"
#include "schedule/words.h"

namespace tutti {

bool SymbolicRun::load(const std::function<Schedule(const ScheduleRequest&)>& make,
                       uint32_t lanes) {
    ranks_.resize(static_cast<std::size_t>(r_.ranks));
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        RankState& state = state_of(rank);
        state.schedule = make({r_.ranks, rank, r_.root, lanes, r_.hosts});
        for (Lane& lane : state.schedule.lanes) lane.shrink_to_fit();
        state.lanes.resize(state.schedule.lanes.size());
        if (rank == 0)
            places_ =
                std::make_unique<Places>(r_.collective, r_.ranks, r_.root, state.schedule.chunks);
        if (!check_shape(rank)) return false;
    }
    expect_ = std::make_unique<Expectations>(r_, *places_, ranks_[0].schedule.chunks, values_);
    connect();
    return true;
}

bool SymbolicRun::check_shape(Rank rank) {
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
    if (state.schedule.sends_partials != first.sends_partials) {
        problem =
            fmt::format("rank {} and rank 0 disagree on whether partial results are sent", rank);
        return false;
    }
    if (state.lanes.empty() || state.schedule.chunks == 0) {
        problem = fmt::format("rank {} has {} lanes and {} chunks, it needs one of each", rank,
                              state.lanes.size(), state.schedule.chunks);
        return false;
    }
    if (first.chunks % places_->blocks() != 0 ||
        (first.cycle != 0 && first.chunks % first.cycle != 0)) {
        problem =
            fmt::format("rank {} has {} chunks, not a multiple of {} blocks and of a cycle of {}",
                        rank, first.chunks, places_->blocks(), first.cycle);
        return false;
    }
    if (!check_steps(rank)) return false;
    problem = find_conflict(state.schedule, *places_, r_.in_place);
    if (!problem.empty()) problem = fmt::format("rank {} {}", rank, problem);
    return problem.empty();
}

bool SymbolicRun::check_steps(Rank rank) {
    RankState& state = state_of(rank);
    for (std::size_t lane = 0; lane < state.lanes.size(); ++lane) {
        LaneState& position = state.lanes[lane];
        for (const Step& step : state.schedule.lanes[lane]) {
            if (!check_step(rank, lane, step)) return false;
            state.joined |= static_cast<bool>(step.after);
            ++position.step;
        }
        position.step = 0;
    }
    return true;
}

bool SymbolicRun::check_step(Rank rank, std::size_t lane, const Step& step) {
    const Schedule& s = state_of(rank).schedule;
    for (Rank peer : {step.recv, step.send})
        if (peer != nobody && (peer < 0 || peer >= r_.ranks || peer == rank))
            return complain(rank, lane, fmt::format("rank {} is no peer", peer));
    if (!step.local && !step.out)
        return complain(rank, lane, "has neither local nor out, so it has no size");
    if (step.recv == nobody && !step.local)
        return complain(rank, lane, "neither receives nor reads local, so it has no value");
    if (step.recv == nobody && step.keep)
        return complain(rank, lane, "has keep, but receives no message");
    if (step.chunks == 0) return complain(rank, lane, "moves 0 chunks");
    if (step.out.space == Space::input) return complain(rank, lane, "overwrites the input");
    if (step.local && step.out && step.local.chunk != step.out.chunk &&
        step.local.chunk != any_chunk && step.out.chunk != any_chunk)
        return complain(rank, lane, "moves a chunk to another chunk's place");
    for (const Region& region : {step.local, step.out})
        if (region && !check_region(rank, lane, step, region)) return false;
    const bool travels = step.recv != nobody || step.send != nobody;
    if (travels && step.chunks > s.longest_run)
        return complain(rank, lane,
                        fmt::format("is longer than the longest run, {} chunks", s.longest_run));
    const bool partial = (step.recv != nobody && step.in == Form::partial) ||
                         (step.send != nobody && step.result == Form::partial);
    if (partial && !s.may_send_partials(r_.ranks))
        return complain(rank, lane, "moves a partial result, for which messages are not cut");
    if (step.after &&
        (step.after.lane >= s.lanes.size() || step.after.step >= s.lanes[step.after.lane].size() ||
         step.after.lane == lane))
        return complain(rank, lane, "waits for a step that does not exist in another lane");
    return true;
}

bool SymbolicRun::check_region(Rank rank, std::size_t lane, const Step& step,
                               const Region& region) {
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

// Checks the conversions of a step: reductions yield partial or final; moves never return to a form
// that holds less.
bool SymbolicRun::check_forms(Rank rank, std::size_t lane, const Step& step) {
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

}  // namespace tutti
