// Sparse tables: a step uses few rows. Sums of lists of rows, and rows fetched from shards. The
// host merges the lists; it copies them with the devices' copy.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/recorder.h"
#include "trainer/sync/task_table.h"

namespace tutti::trainer {

/// Appends a collective for each sparse parameter: its gradient's list on every device becomes the
/// sum of the lists of all replicas, each row once, in order, its values added in the order of the
/// replicas. Also for one replica, so that the update reads each row once.
void append_sparse_sums(Program& program, TaskTable& tasks, const ModelRecorder& recorder,
                        const Replicas& replicas);

struct ShardedTable {
    std::vector<const Buffer*> shards;  // by local device
    std::vector<Device*> devices;
    int64_t total_rows = 0;
};

/// Copies row rows[i] to the i-th place of values. Collective; all ranks fail together.
Result<> pull_rows(const ShardedTable& table, const Comm& comm, std::span<const int64_t> rows,
                   std::byte* values);

}  // namespace tutti::trainer
