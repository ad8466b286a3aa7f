// Binding: a schedule, a size, a reducer and channels become an Operation that only has to be run.
#pragma once

#include <memory>

#include "engine/bound_schedule.h"
#include "engine/channels.h"
#include "engine/layout.h"
#include "reduce/reduce.h"
#include "schedule/schedule.h"
#include "transport/operation.h"

namespace tutti {

struct BindRequest {
    Collective collective = Collective::allreduce;
    Rank ranks = 1;
    Rank rank = 0;
    Rank root = 0;
    Schedule schedule;
    std::size_t count = 0;      // elements of the whole message, or of each block
    BlockLayout input, output;  // blocks of different lengths; empty: all of `count`
    bool tag_by_block = false;  // only the two ranks of a message know its size
    Reducer reducer = Reducer::mover(1);
    int32_t divisor = 1;            // avg: the number of ranks
    std::size_t message_bytes = 0;  // the largest message; fixes the tile size
    std::size_t stream_bytes = 0;   // results at least this large bypass the cache, unless in place
    uint16_t first_lane = 0;        // lane 0 of the schedule on the communicator's channels
    struct WindowRequest {
        uint32_t slots = 0;
        std::size_t bytes = 0;    // about that many bytes of the larger buffer in a slot
        uint32_t most_fills = 1;  // larger slots instead of more fills
        std::size_t count = 0;    // decides the fills as if this were the count; 0: uses
                                  // the count
    } window;
    WorkMemory* scratch = nullptr;  // nullptr: other operations may run at the same time
    Deadline deadline;
};

/// invalid if a step could not run (verify() has proved that it can); else errors of open().
Result<std::unique_ptr<BoundSchedule>> bind(BindRequest request, ChannelProvider& channels);

}  // namespace tutti
