// A symbolic run of all ranks' steps over FIFO channels with a number of credits.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "proof/expect.h"
#include "proof/symbolic_channels.h"

namespace tutti {

class SymbolicRun {
public:
    explicit SymbolicRun(const VerifyRequest& request)
        : r_(request), values_(request.collective == Collective::barrier ? request.ranks : 0) {}

    /// Generates and checks every rank's schedule on its own; false: `problem` says why.
    bool load(const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes);
    /// Runs all ranks' steps from the beginning. May be called repeatedly after load().
    void run(uint32_t credits, uint32_t tiles);

    std::string problem;
    bool deadlock = false;
    bool ordered = true;
    uint64_t messages = 0, busiest = 0;
    uint32_t hops = 0;

private:
    using Value = symbolic::Value;
    enum class Outcome : uint8_t { advanced, waiting, failed };

    // A step's channels, and the first of the results that it made in the last tile.
    struct Ports {
        static constexpr uint32_t none = ~0u;
        uint32_t in = none, out = none;
        uint32_t made = symbolic::Values::no_guess;
    };
    // A rank's memory of one tile, by position; freed when all its lanes have left the tile and it
    // was checked. In place, it holds the inputs too.
    struct TileMemory {
        std::vector<Value> output;
        std::vector<std::pair<uint32_t, uint32_t>> writer;  // lane and step that stored it
        std::size_t lanes_left = 0;
    };
    struct LaneState {
        static constexpr uint32_t nothing = ~0u, another_lane = nothing - 1;
        std::vector<Ports> ports;
        uint32_t tile = 0, step = 0;
        uint32_t waits_on = nothing;   // a channel, or another_lane
        uint32_t depth = 0;            // longest chain of messages so far
        std::vector<uint32_t> depths;  // the same after each step of tile 0, for lanes that wait
                                       // for the step
        TileMemory* memory = nullptr;  // of the tile, once it has begun
        bool queued = false;
    };
    struct RankState {
        Schedule schedule;
        bool joined = false;  // some lanes wait for each other
        std::vector<LaneState> lanes;
        std::vector<Value> scratch;
        std::map<uint32_t, TileMemory> tiles;
    };

    // Each rank's schedule on its own (run_shape.cpp).
    bool check_shape(Rank rank);
    bool check_steps(Rank rank);
    bool check_step(Rank rank, std::size_t lane, const Step& step);
    bool check_region(Rank rank, std::size_t lane, const Step& step, const Region& region);
    bool check_forms(Rank rank, std::size_t lane, const Step& step);

    // All together (run.cpp).
    void connect();
    void reset(uint32_t credits, uint32_t tiles);
    Outcome advance(Rank rank, std::size_t lane);
    bool waits(RankState& state, LaneState& here, const Step& step);
    bool move(Rank rank, std::size_t lane, const Step& step,
              SymbolicChannels::SymbolicMessage* arrived, SymbolicChannels::SymbolicMessage* sent);
    bool value_of(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                  const Value* arrived, uint32_t guess, Value& value);
    bool take_local(Rank rank, std::size_t lane, const Step& step, uint32_t index, Value& value);
    Value& place(RankState& state, LaneState& here, const Step& step, const Region& region,
                 uint32_t index);
    void store(Rank rank, std::size_t lane, const Step& step, uint32_t index, Value value);
    TileMemory& tile_memory(Rank rank, uint32_t tile);
    void finish_step(Rank rank, std::size_t lane);
    bool check_output(Rank rank, uint32_t tile, const TileMemory& memory);
    std::string fault(Rank rank, uint32_t chunk, Value value);
    void wake(Rank rank, std::size_t lane, uint32_t waits_on);

    // Error messages (run_words.cpp).
    std::string at(Rank rank, std::size_t lane) const;
    bool complain(Rank rank, std::size_t lane, const std::string& what);
    std::string waits_for(Rank rank, std::size_t lane);
    void explain_deadlock();
    bool find_unreceived();

    RankState& state_of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
    const RankState& state_of(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
    bool done(Rank rank, std::size_t lane) const {
        return state_of(rank).lanes[lane].tile >= tiles_;
    }

    const VerifyRequest& r_;
    uint32_t credits_ = 1, tiles_ = 1;
    std::vector<RankState> ranks_;
    std::unique_ptr<Places> places_;
    symbolic::Values values_;
    std::unique_ptr<Expectations> expect_;
    uint32_t channels_ = 1;
    SymbolicChannels queues_;
    std::deque<std::pair<Rank, std::size_t>> ready_;
    std::vector<Value> right_;  // for reductions, per chunk: a result that was found correct
    std::vector<uint64_t> chunks_sent_;
};

}  // namespace tutti
