// One simulation's state: ranks, lanes and channels, with everything resolved before the clock
// starts.
#pragma once

#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proof/simulate.h"

namespace tutti::sim {

class Simulator {
public:
    explicit Simulator(const SimulationRequest& request)
        : r_(request), fabric_(request.network, request.ranks) {}

    void load();
    void run();
    /// Empty, or the first lane that did not finish and the step that it waits for.
    std::string stuck() const;
    Report report() &&;

private:
    static constexpr uint32_t none = ~0u;

    // A step, without the fields that matter only to values.
    struct Move {
        uint32_t recv = none, send = none;  // channels
        After after;
        uint64_t elements = 0, last_elements = 0;  // of any tile, of the last
        uint8_t sent_bytes = 0;                    // per element, in the message
        uint8_t work_bytes = 0;                    // per element reduced or copied; 0: neither
        bool keep = false;
    };
    struct SimulatedLane {
        std::vector<Move> moves;
        uint32_t tile = 0, step = 0;
    };
    struct SimulatedRank {
        std::vector<SimulatedLane> lanes;
        uint32_t current = 0;  // the lane that has, or last had, the processor
        bool busy = false;
        Picoseconds since = 0;  // when the current step began
    };
    struct SimulatedChannel {
        Rank from = nobody, to = nobody;
        uint32_t lane = 0;
        uint32_t credits = 0;
        uint64_t arrived = 0, used = 0;  // messages
    };
    struct SimulatedMessage {
        uint32_t channel = none;
        uint32_t hop = 0;
        uint32_t tile = 0;
        uint64_t bytes = 0;
        Picoseconds sent = 0, tail = 0;
    };
    enum class What : uint8_t { hop, arrival, credit, step_end };
    struct SimulatedEvent {
        Picoseconds at = 0;
        uint64_t number = 0;  // events of one time keep the order in which they were created
        What what = What::hop;
        uint32_t which = 0;  // message, message, channel, rank
        bool operator>(const SimulatedEvent& other) const {
            return at != other.at ? at > other.at : number > other.number;
        }
    };

    Move compile(Rank rank, uint32_t lane, const Schedule& schedule, const Step& step);
    bool needs_pass(const Step& step) const;
    uint32_t channel(Rank from, Rank to, uint32_t lane);

    void wake(Rank rank);
    bool can_start(const SimulatedRank& state, const SimulatedLane& lane) const;
    void start_step(Rank rank, uint32_t lane);
    void end_step(Rank rank);
    Picoseconds duration(const Move& move, uint64_t elements) const;
    uint64_t elements_of(const Move& move, uint32_t tile) const {
        return tile + 1 == r_.data.tiles ? move.last_elements : move.elements;
    }

    void send(uint32_t channel, uint64_t bytes, uint32_t tile);
    void cross_link(uint32_t message);
    void arrive(uint32_t message);
    void push(Picoseconds at, What what, uint32_t which) {
        events_.push({at, events_made_++, what, which});
    }

    const SimulationRequest& r_;
    Fabric fabric_;
    std::vector<SimulatedRank> ranks_;
    std::vector<SimulatedChannel> channels_;
    std::unordered_map<uint64_t, uint32_t> channel_numbers_;  // while loading
    std::vector<SimulatedMessage> messages_;
    std::vector<uint32_t> free_messages_;
    std::priority_queue<SimulatedEvent, std::vector<SimulatedEvent>, std::greater<>> events_;
    uint64_t events_made_ = 0;
    Picoseconds now_ = 0;
    Report report_;
};

}  // namespace tutti::sim
