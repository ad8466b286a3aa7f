// The device's part of a collective over several hosts: the ranks of one host split the data with
// the device library, so that each carries its share over the wire.
#pragma once

#include "cuda/library.h"
#include "gpu/operations/tiled.h"

namespace tutti {

/// A message is cut into `count` stripes: a number that the ranks of each host can share evenly, or
/// else the number of ranks of the largest host or more. A rank carries neighbouring stripes.
struct Stripes {
    Rank count = 1;
    Rank carrier(Rank stripe, Rank locals) const { return stripe * locals / count; }
    /// The first stripe of a local rank; local == locals gives the end.
    Rank first(Rank local, Rank locals) const { return (local * count + locals - 1) / locals; }
    /// Elements of a stripe. The first stripe also has the remainder.
    std::size_t share(std::size_t elements) const {
        return elements / static_cast<std::size_t>(count);
    }
    std::size_t remainder(std::size_t elements) const {
        return elements % static_cast<std::size_t>(count);
    }
};

struct AcrossRequest {
    Window window;         // of the first stripe that this rank carries, over the hosts
    Stripes stripes;       // of a message
    IntrinsicShape shape;  // the call: count of the message or of a block, and the operator
    std::size_t element_bytes = 1;
    Rank local = 0, locals = 1;  // this rank among those of its host
    Rank hosts = 1;
    bool on_root_host = false;   // broadcast; shape.root is the root's number on its host
    std::vector<Rank> by_place;  // blocks: the rank that is local l of host h, at l × hosts + h
    std::shared_ptr<DeviceGroup> group;  // of this host's ranks
};

/// allreduce and broadcast cut a message into stripes and a remainder, which the carriers of the
/// first stripe take too; hosts may have different numbers of ranks. reduce_scatter and allgather
/// need the same number of ranks on each host, and device memory for the tiles: call it while no
/// collective runs.
Result<std::unique_ptr<TileStages>> across(AcrossRequest request, const device::Context& context);

}  // namespace tutti
