// The device's part of a collective over several hosts with as many ranks each: what a host's ranks
// do among themselves by their devices' library, so that each carries its share over the wire.
#pragma once

#include "engine/tiled.h"
#include "transport/device_library.h"

namespace tutti {

struct AcrossRequest {
    Window window;         // of this rank's share, over the hosts
    IntrinsicShape shape;  // the call: count of the message or of a block; what to add up with
    std::size_t element_bytes = 1;
    Rank local = 0, locals = 1;  // this rank among those of its host
    Rank hosts = 1;
    bool on_root_host = false;   // broadcast; shape.root is the root's number on its host
    std::vector<Rank> by_place;  // blocks: the rank that is local l of host h, at l × hosts + h
    std::shared_ptr<DeviceGroup> group;  // of this host's ranks
};

/// allreduce and broadcast cut a message into a share for each local rank and, where that does not
/// come out even, a rest that the first carries. reduce_scatter and allgather need device memory
/// for the tiles: allocated here, while no collective runs.
Result<std::unique_ptr<Around>> across(AcrossRequest request, const device::Context& context);

/// Elements of this rank's share of a message.
inline std::size_t share_of(std::size_t count, Rank local, Rank locals) {
    const auto n = static_cast<std::size_t>(locals);
    return count / n + (local == 0 ? count % n : 0);
}

}  // namespace tutti
