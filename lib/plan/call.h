// Everything about a call but its buffers.
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

/// The lengths of a buffer's blocks and where they start, in elements, as the caller gave them. No
/// displacements: one after the other.
struct BlockList {
    std::span<const std::size_t> counts, displacements;
    bool operator==(const BlockList& other) const {
        return std::ranges::equal(counts, other.counts) &&
               std::ranges::equal(displacements, other.displacements);
    }
};

/// With every displacement written out.
BlockLayout to_blocks(const BlockList& list);

/// The mechanism that serves a call, by the memory that its buffers are in.
enum class Path : uint8_t {
    host,     // host memory
    library,  // a device's own library
    staged,   // device memory, copied to the host's and back
    tiled,    // the same in tiles, whose copies overlap the wire
    across,   // a device's library within each host, the wire between hosts
};

/// Whether a device library's group has a part in it.
constexpr bool by_group(Path path) {
    return path == Path::library || path == Path::across;
}

/// Of a staged call, the buffer that is in host memory and used there.
enum class OnHost : uint8_t { neither, input, output };

struct Call {
    Collective collective = Collective::allreduce;
    std::size_t count = 0;  // of the message or of each block; uneven: of this rank's own block
    Dtype dtype = Dtype::uint8;
    Op op = Op::sum;
    Rank root = 0;
    std::string_view algorithm;  // "": tutti's choice
    bool uneven = false;         // the v form: blocks have the lengths below
    Path path = Path::host;
    OnHost on_host = OnHost::neither;
    int32_t inputs = 0;       // buffers of this rank in one allreduce; 0: it is no multi
    BlockList input, output;  // of the buffers that have a block for each rank
    CallName name;            // of a barrier, or of the operation that this is a part of

    /// The lists matter where they are: few calls have any, and all are compared on their way in.
    bool operator==(const Call& other) const {
        return count == other.count && collective == other.collective && dtype == other.dtype &&
               op == other.op && root == other.root && uneven == other.uneven &&
               path == other.path && on_host == other.on_host && inputs == other.inputs &&
               algorithm == other.algorithm && name == other.name &&
               (!uneven || (input == other.input && output == other.output));
    }
};

/// invalid unless every length on its own, their sum, and the furthest end are bytes that memory
/// can hold. The dtype must be one.
Result<> check_lengths(const Call& call, Rank ranks);

/// Elements of the caller's larger buffer: what is worth a large message's algorithm.
std::size_t total_elements(const Call& call, Rank ranks);

/// The call's blocks as the engine wants them: nothing for blocks of one length.
struct CallBlocks {
    BlockLayout input, output;
    bool tag_by_block = false;  // lengths are known to the two ends only
};
CallBlocks blocks_of(const Call& call);

/// Hashes what all ranks have to agree on beyond the tag's own fields; 0 for blocks of one length
/// without a name.
uint64_t fingerprint(const Call& call);

}  // namespace tutti
