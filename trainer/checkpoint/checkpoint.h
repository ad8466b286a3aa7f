// Saving and restoring over a group of ranks: rank 0 has the file, the others send and receive.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/base/result.h"
#include "trainer/checkpoint/entries.h"
#include "trainer/checkpoint/manifest.h"
#include "tutti/checkpoint.h"

namespace tutti::trainer::checkpoint {

/// How values come from and go to a device; a null function means the host's memory.
struct Copier {
    tutti_checkpoint_copy copy = nullptr;
    void* user = nullptr;

    Result<> from_device(std::byte* to, const std::byte* from, std::size_t bytes) const {
        return move(to, from, bytes, false);
    }
    Result<> to_device(std::byte* to, const std::byte* from, std::size_t bytes) const {
        return move(to, from, bytes, true);
    }

private:
    Result<> move(std::byte* to, const std::byte* from, std::size_t bytes, bool inwards) const;
};

using Texts = std::map<std::string, std::string>;

Result<> save(const Entries& entries, const Texts& texts, const Copier& copier, tutti_comm* comm,
              const std::string& path);

struct Loaded {
    Texts texts;
    std::vector<std::string> missing;
};
/// Writes to the entries' memory once everything was checked.
Result<Loaded> load(const Entries& entries, const Copier& copier, tutti_comm* comm,
                    const std::string& path, Strictness strictness);

/// The part of an entry that a device of this process has.
const Part& part_of(const Entry& entry, const Shard& shard);

}  // namespace tutti::trainer::checkpoint
