// Tables of which a step touches few rows: sums of lists of rows, and rows fetched from shards.
// Lists are merged on the host, which reaches them through the devices' copy.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/recorder.h"
#include "trainer/sync/collectives.h"

namespace tutti::trainer {

/// One device's list.
struct SparseEntries {
    int values, rows, count;  // buffers
};

/// Every device's list becomes the sum of all lists of all ranks: each row once, in order, its
/// values added in the order of the replicas. Returns the bytes of all lists.
Result<uint64_t> sum_sparse(const Recorder& recorder, const std::vector<Device*>& devices,
                            Comm& comm, const std::vector<SparseEntries>& entries);

struct ShardedTable {
    std::vector<const Buffer*> shards;  // by local device
    std::vector<Device*> devices;
    int64_t total_rows = 0;
};

/// Row rows[i] to the i-th place of values. Every rank calls it; all fail together.
Result<> pull_rows(const ShardedTable& table, Comm& comm, std::span<const int64_t> rows,
                   std::byte* values);

}  // namespace tutti::trainer
