// One symbolic run of all ranks' steps over FIFO channels with so many credits.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/expect.h"

namespace tutti {

class Run {
public:
    Run(const VerifyRequest& request, uint32_t credits, uint32_t tiles)
        : r_(request), credits_(credits), tiles_(tiles) {}

    /// Generates and checks every rank's schedule on its own; false: `problem` says why.
    bool load(const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes);
    void run();

    std::string problem;
    bool deadlock = false;
    bool ordered = true;
    uint64_t messages = 0, busiest = 0;
    uint32_t hops = 0;

private:
    using Value = symbolic::Value;
    enum class Outcome : uint8_t { advanced, waiting, failed };

    struct Message {
        std::vector<Value> values;
        uint32_t depth = 0;
        uint32_t step = 0, tile = 0;  // where the sender sent it
    };
    struct Channel {
        std::vector<Message> messages;  // as many as there are credits: the first is the oldest
        uint64_t sent = 0, released = 0;
    };
    // A step's channels, looked up once.
    struct Ports {
        Channel* in = nullptr;
        Channel* out = nullptr;
    };
    struct LaneState {
        std::vector<Ports> ports;
        uint32_t tile = 0, step = 0;
        uint32_t depth = 0;            // longest chain of messages so far
        std::vector<uint32_t> depths;  // the same after each step of tile 0, for who waits for it
        bool queued = false;
    };
    // A rank's memory of one tile, by position; freed when all its lanes have left the tile and it
    // was checked. In place, the inputs stand there too.
    struct TileMemory {
        std::vector<Value> output;
        std::vector<std::pair<uint32_t, uint32_t>> writer;  // lane and step that stored it
        std::size_t lanes_left = 0;
    };
    struct RankState {
        Schedule schedule;
        std::vector<LaneState> lanes;
        std::vector<Value> scratch;
        std::map<uint32_t, TileMemory> tiles;
    };
    struct ChannelKey {
        Rank from, to;
        uint32_t lane;
        bool operator==(const ChannelKey&) const = default;
    };
    struct HashKey {
        std::size_t operator()(const ChannelKey& k) const {
            return symbolic::mix(static_cast<uint64_t>(k.from) << 32 | static_cast<uint32_t>(k.to),
                                 k.lane);
        }
    };

    bool check_shape(Rank rank);
    bool check_step(Rank rank, std::size_t lane, const Step& step);
    bool check_run(Rank rank, std::size_t lane, const Step& step, const Region& region);
    bool check_forms(Rank rank, std::size_t lane, const Step& step);

    void connect();
    Outcome advance(Rank rank, std::size_t lane);
    bool value_of(Rank rank, std::size_t lane, const Step& step, uint32_t index,
                  const Message* arrived, Value& value);
    bool take_local(Rank rank, std::size_t lane, const Step& step, uint32_t index, Value& value);
    Value& place(RankState& state, const Step& step, const Region& region, uint32_t index,
                 uint32_t tile);
    void store(Rank rank, std::size_t lane, const Step& step, uint32_t index, const Value& value);
    TileMemory& tile_memory(Rank rank, uint32_t tile);
    void finish_step(Rank rank, std::size_t lane);
    bool check_output(Rank rank, uint32_t tile, const TileMemory& memory);
    void wake(Rank rank, std::size_t lane);

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
    Channel& channel(Rank from, Rank to, std::size_t lane) {
        return channels_[{from, to, static_cast<uint32_t>(lane)}];
    }

    const VerifyRequest& r_;
    const uint32_t credits_, tiles_;
    std::vector<RankState> ranks_;
    std::unique_ptr<Places> places_;
    std::unique_ptr<Expectations> expect_;
    std::unordered_map<ChannelKey, Channel, HashKey> channels_;
    std::deque<std::pair<Rank, std::size_t>> ready_;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> bits_;  // per (tile, chunk): every rank's
    std::vector<uint64_t> chunks_sent_;
};

}  // namespace tutti
