// A collective call without its buffers, and the facts that follow from its arguments alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/collective.h"
#include "base/result.h"
#include "engine/layout.h"
#include "record/call_name.h"
#include "reduce/reduce.h"

namespace tutti {

/// The lengths of a buffer's blocks and where they start, in elements, as the caller gave them. If
/// displacements is empty, the blocks lie one after the other.
struct BlockList {
    std::span<const std::size_t> counts, displacements;
    bool operator==(const BlockList& other) const {
        return std::ranges::equal(counts, other.counts) &&
               std::ranges::equal(displacements, other.displacements);
    }
};

/// A copy of the list in which every displacement is filled in.
BlockLayout to_blocks(const BlockList& list);

/// The mechanism that serves a call, by the memory that its buffers are in.
enum class Path : uint8_t {
    host,     // host memory
    library,  // device memory: one collective of the device library (NCCL)
    staged,   // device memory, copied to host memory, sent by tutti's transports, copied back
    tiled,    // the same tile by tile, so that copies overlap transfers on the wire
    across,   // "hierarchical": the device library within each host, tutti's transports between
};

/// True if the path uses the communicator of a device library (DeviceGroup).
constexpr bool by_group(Path path) {
    return path == Path::library || path == Path::across;
}

/// In a staged call, at most one buffer is in host memory. The operation uses it without a copy.
enum class OnHost : uint8_t { neither, input, output };

struct Call {
    Collective collective = Collective::allreduce;
    // Elements of the message, or of each block. In a v form it is this rank's own block, and 0 in
    // alltoallv.
    std::size_t count = 0;
    Dtype dtype = Dtype::uint8;
    Op op = Op::sum;
    Rank root = 0;
    std::string_view algorithm;  // "": tutti's choice
    bool uneven = false;         // a v form: input and output below hold the lengths
    Path path = Path::host;
    OnHost on_host = OnHost::neither;
    int32_t inputs = 0;       // allreduce_multi: input buffers of this rank; 0: any other call
    BlockList input, output;  // of a v form; empty for a buffer without a block for each rank
    CallName name;            // of a barrier, or of the operation that this call is a part of

    /// The plan cache compares every call, and few calls have lists: only a v form's are compared.
    bool operator==(const Call& other) const {
        return count == other.count && collective == other.collective && dtype == other.dtype &&
               op == other.op && root == other.root && uneven == other.uneven &&
               path == other.path && on_host == other.on_host && inputs == other.inputs &&
               algorithm == other.algorithm && name == other.name &&
               (!uneven || (input == other.input && output == other.output));
    }
};

/// invalid if the message, a list's blocks together, or the end of a block is more than PTRDIFF_MAX
/// bytes. The caller has checked that the dtype exists.
Result<> check_lengths(const Call& call, Rank ranks);

/// Elements of the call's larger buffer (a gather's output at the root). Selection takes it for the
/// size of the call.
std::size_t total_elements(const Call& call, Rank ranks);

/// The call's blocks for the engine's BindRequest; the lists are empty unless the call is a v form.
struct CallBlocks {
    BlockLayout input, output;
    // Only sender and receiver know a block's length: each message's tag carries it.
    bool tag_by_block = false;
};
CallBlocks blocks_of(const Call& call);

/// A hash of the arguments that all ranks must agree on and that have no field in the tag: the
/// name, and the block lengths of allgatherv and reduce_scatterv. 0 for a call without a name that
/// is no v form.
uint64_t fingerprint(const Call& call);

}  // namespace tutti
