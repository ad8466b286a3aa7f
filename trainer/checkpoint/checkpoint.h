// Saving and restoring over a group of ranks: rank 0 has the file, the other ranks send and
// receive.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/base/result.h"
#include "trainer/checkpoint/entries.h"
#include "trainer/checkpoint/manifest.h"

namespace tutti::trainer::checkpoint {

using Texts = std::map<std::string, std::string>;

Result<> save(const Entries& entries, const Texts& texts, const Copier& copier, tutti_comm* comm,
              const std::string& path);

struct Loaded {
    Texts texts;
    std::vector<std::string> missing;
};
/// Writes to the entries' memory only after all checks; began: whether it started to write.
Result<Loaded> load(const Entries& entries, const Copier& copier, tutti_comm* comm,
                    const std::string& path, Strictness strictness, bool* began = nullptr);

/// name: of the argument, for the error.
Result<Strictness> read_strictness(const char* name, const tutti_checkpoint_opts* opts);

/// The part of an entry that a device of this process has.
const EntryPart& part_of(const StateEntry& entry, const Shard& shard);

}  // namespace tutti::trainer::checkpoint

struct tutti_checkpoint {
    tutti::trainer::checkpoint::Entries entries;
    tutti::trainer::checkpoint::Copier copier;
    tutti::trainer::checkpoint::Texts texts;
    std::vector<std::string> missing;
};
