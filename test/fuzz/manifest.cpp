// Feeds rank 0 arbitrary manifests: the lists of what each rank asks a checkpoint for.
#include "trainer/checkpoint/manifest.h"

#include "fuzz/catalog.h"

namespace tutti::fuzz {

using namespace trainer::checkpoint;

// One rank's on each line.
void run_checkpoint_manifest(ByteView input) {
    std::vector<std::string> texts(1);
    for (const char c : as_text(input)) {
        if (c == '\n')
            texts.emplace_back();
        else
            texts.back() += c;
    }
    const auto merged = merge_manifests(texts);
    if (!merged) return require(!merged.error().message.empty(), "an error without a reason");
    const bool covered = check_cover(*merged).has_value();
    for (const auto& [name, wanted] : *merged) {
        int64_t rows = 0;
        for (const Shard& shard : wanted.shards) {
            require(shard.rows >= 0 && shard.first_row >= 0, "a shard of negative rows");
            rows += shard.rows;
        }
        const int64_t all = wanted.shape.empty() ? 1 : wanted.shape[0];
        require(!covered || !wanted.sharded || rows == all, "rows are there twice, or nowhere");
    }
    require(match(*merged, {}, {.allow_missing = true}).has_value(), "nothing is too much");
}

std::vector<Bytes> seeds_checkpoint_manifest() {
    const auto of_rank = [](int64_t first_row) {
        StateEntry whole{.dtype = TUTTI_FLOAT32, .shape = {3, 4}};
        StateEntry shard{.dtype = TUTTI_INT64, .shape = {10}, .sharded = true};
        shard.parts = {{.first_row = first_row, .rows = 5}};
        return write_manifest({{"fc/weight", whole}, {"table", shard}});
    };
    return {to_bytes(of_rank(0) + "\n" + of_rank(5)), to_bytes(of_rank(0)), to_bytes("{}\n{}")};
}

}  // namespace tutti::fuzz
