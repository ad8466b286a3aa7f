// The manifest: each rank sends its list of entries to rank 0, which reads and writes for all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/base/result.h"
#include "trainer/checkpoint/entries.h"
#include "trainer/checkpoint/layout.h"

namespace tutti::trainer::checkpoint {

struct Shard {
    int64_t first_row = 0;
    int rank = 0;
    int device = 0;
    int64_t rows = 0;
};

struct ManifestEntry {
    tutti_dtype dtype = -1;
    std::vector<int64_t> shape;
    bool sharded = false;
    std::vector<Shard> shards;  // by first row, then rank, then device
};
using Manifest = std::map<std::string, ManifestEntry, std::less<>>;

std::string write_manifest(const Entries& entries);

/// Merges all ranks' manifests; entries that are not sharded must be the same on each rank.
Result<Manifest> merge_manifests(const std::vector<std::string>& texts);

/// Checks that the shards cover each row of each sharded entry exactly once.
Result<> check_cover(const Manifest& manifest);

struct Strictness {
    bool allow_missing = false;
    bool allow_extra = false;
};
/// Returns the names that the file lacks, if that is allowed; any other difference is an error.
Result<std::vector<std::string>> match(const Manifest& manifest, const FileHeader& header,
                                       Strictness strictness);

}  // namespace tutti::trainer::checkpoint
