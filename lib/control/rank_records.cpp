#include "control/rank_records.h"

#include <fmt/format.h>

#include <utility>

#include "control/tree.h"

namespace tutti {
namespace {

ErrorResult malformed(Rank from, std::string_view why) {
    return fail_rank(Code::system, from, "rank {} sent a malformed message while joining: {}", from,
                     why)
        .advice("install the same version of tutti on every host");
}

}  // namespace

RankRecords::RankRecords(Rank rank, Rank size, std::string own) : rank_(rank) {
    if (own.empty()) return;
    records_.resize(static_cast<std::size_t>(size));
    records_[static_cast<std::size_t>(rank)] = std::move(own);
}

bool RankRecords::is_behind(Rank neighbour, Rank rank) const {
    return rank != rank_ && tree_next_hop(rank_, rank) == neighbour;
}

std::vector<Bytes> RankRecords::encode_for(Rank neighbour, uint8_t kind) const {
    const auto size = static_cast<Rank>(records_.size());
    constexpr std::size_t head_bytes = sizeof kind + sizeof size;
    std::vector<Bytes> chunks;
    ByteWriter out;
    std::size_t bytes = 0;  // of the chunk that is being written
    for (Rank rank = 0; rank < size; ++rank) {
        const std::string& record = records_[static_cast<std::size_t>(rank)];
        if (record.empty() || is_behind(neighbour, rank)) continue;
        const std::size_t entry_bytes = sizeof rank + sizeof(uint32_t) + record.size();
        if (bytes > 0 && bytes + entry_bytes > max_chunk_bytes) {
            chunks.push_back(std::exchange(out, {}).take());
            bytes = 0;
        }
        if (bytes == 0) {
            out.put(kind).put(size);
            bytes = head_bytes;
        }
        out.put(rank).put_text(record);
        bytes += entry_bytes;
    }
    if (bytes > 0) chunks.push_back(out.take());
    return chunks;
}

Result<> RankRecords::add(Rank neighbour, ByteReader& in) {
    const auto size = static_cast<Rank>(records_.size());
    do {
        const auto rank = in.get<Rank>();
        std::string record = in.get_text(max_record_bytes);
        if (!in.ok() || record.empty())
            return malformed(neighbour,
                             fmt::format("a record is cut off, empty or longer than {} bytes",
                                         max_record_bytes));
        if (rank < 0 || rank >= size || !is_behind(neighbour, rank))
            return malformed(
                neighbour,
                fmt::format(
                    "it has a record of rank {}, which is not behind it in the control tree",
                    rank));
        std::string& kept = records_[static_cast<std::size_t>(rank)];
        if (!kept.empty())
            return malformed(neighbour, fmt::format("the record of rank {} came twice", rank));
        kept = std::move(record);
    } while (!in.at_end());
    return {};
}

std::vector<std::string> RankRecords::take() {
    return std::exchange(records_, {});
}

}  // namespace tutti
