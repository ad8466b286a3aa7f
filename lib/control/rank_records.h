// The records of a job's ranks, on their way through the control tree while the job starts.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/types.h"

namespace tutti {

/// Collects the ranks' records. Each neighbour in the control tree may send the records of the
/// ranks behind it, those for which it is the next hop. This class does not read a record; a record
/// is never empty.
class RankRecords {
public:
    /// Each rank receives and keeps all records, and sends them to up to eight children. A record
    /// has a few hundred bytes, so in a job of this size all have half a megabyte. The ranks of a
    /// larger job do not exchange records: they look them up in the store.
    static constexpr Rank most_ranks = 1024;
    /// The records of the largest job fit in the 32 MiB that may wait for a neighbour
    /// (PeerLimits::unsent_control_bytes).
    static constexpr uint32_t max_record_bytes = 24 * 1024;
    /// Below the control tree's limit for a message.
    static constexpr std::size_t max_chunk_bytes = 48 * 1024;

    /// own: this rank's record; empty if this rank exchanges none.
    RankRecords(Rank rank, Rank size, std::string own);

    bool exchanged() const { return !records_.empty(); }
    /// The records that are here and that a neighbour lacks, as messages of at most
    /// max_chunk_bytes: the kind, the job's size, then rank and record of each.
    std::vector<Bytes> encode_for(Rank neighbour, uint8_t kind) const;
    /// Reads such a message of a neighbour, from behind the job's size on.
    Result<> add(Rank neighbour, ByteReader& in);
    /// The records by rank, "" for a rank whose record has not come; empty if this rank exchanges
    /// none. Afterwards there are none here.
    std::vector<std::string> take();

private:
    bool is_behind(Rank neighbour, Rank rank) const;

    const Rank rank_;
    std::vector<std::string> records_;  // by rank; "": not here yet
};

}  // namespace tutti
