#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

namespace tutti::trainer::checkpoint {
namespace {

using Json = nlohmann::json;

ErrorResult garbled(int rank, const std::string& what) {
    return fail_rank(TUTTI_ERR_SYSTEM, rank,
                     "checkpoint: rank {} sent a damaged list of its entries: {}", rank, what)
        .advice("use the same version of tutti on every rank");
}

bool is_integer(const Json& json) {
    return json.is_number_integer();
}
bool are_integers(const Json& json) {
    return json.is_array() && std::all_of(json.begin(), json.end(), is_integer);
}
bool are_parts(const Json& json) {
    return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& part) {
               return are_integers(part) && part.size() == 3;
           });
}

struct Field {
    const char* key;
    bool (*fits)(const Json& json);
    const char* what;
};
constexpr Field fields[] = {
    {"dtype", is_integer, "an integer"},
    {"shape", are_integers, "a list of integers"},
    {"sharded", [](const Json& json) { return json.is_boolean(); }, "true or false"},
    {"parts", are_parts, "a list of [first row, rows, device]"},
};

Result<ManifestEntry> read_entry(const std::string& name, const Json& entry, int rank) {
    if (!entry.is_object()) return garbled(rank, fmt::format("entry '{}' is not an object", name));
    for (const Field& field : fields) {
        const auto found = entry.find(field.key);
        if (found == entry.end())
            return garbled(rank, fmt::format("entry '{}' has no '{}'", name, field.key));
        if (!field.fits(*found))
            return garbled(
                rank, fmt::format("'{}' of entry '{}' is not {}", field.key, name, field.what));
    }
    ManifestEntry wanted{.dtype = entry.at("dtype").get<tutti_dtype>(),
                         .shape = entry.at("shape").get<std::vector<int64_t>>(),
                         .sharded = entry.at("sharded").get<bool>(),
                         .shards = {}};
    if (const auto bytes = checked_bytes(wanted.dtype, wanted.shape); !bytes)
        return garbled(rank, fmt::format("entry '{}': {}", name, bytes.error().message));
    const int64_t all = wanted.shape.empty() ? 1 : wanted.shape[0];
    for (const Json& part : entry.at("parts")) {
        const auto first = part[0].get<int64_t>(), rows = part[1].get<int64_t>();
        if (first < 0 || rows < 0 || first > all || rows > all - first)
            return garbled(rank, fmt::format("'parts' of entry '{}' has {} rows from {} on, of {}",
                                             name, rows, first, all));
        wanted.shards.push_back(
            {.first_row = first, .rank = rank, .device = part[2].get<int>(), .rows = rows});
    }
    return wanted;
}

Result<Manifest> read_manifest(const std::string& text, int rank) {
    Manifest manifest;
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return garbled(rank, "it is not a JSON object");
    for (const auto& [name, entry] : json.items()) {
        TRAINER_ASSIGN(ManifestEntry wanted, read_entry(name, entry, rank));
        manifest.emplace(name, std::move(wanted));
    }
    return manifest;
}

ErrorResult differs(int rank, const std::string& name, const std::string& what) {
    return fail_rank(TUTTI_ERR_INVALID, rank, "checkpoint: entry '{}' {}", name, what)
        .advice("add the same entries on every rank, and each row of a shard once");
}

Result<> merge(Manifest& all, const Manifest& own, int rank) {
    for (const auto& [name, wanted] : own) {
        const auto found = all.find(name);
        if (found == all.end()) {
            if (!wanted.sharded)
                return differs(rank, name, fmt::format("is on rank {}, but not on rank 0", rank));
            all.emplace(name, wanted);
            continue;
        }
        ManifestEntry& known = found->second;
        if (known.dtype != wanted.dtype || known.shape != wanted.shape)
            return differs(rank, name,
                           fmt::format("is {} on rank {}, {} on a lower one",
                                       describe(wanted.dtype, wanted.shape), rank,
                                       describe(known.dtype, known.shape)));
        if (known.sharded != wanted.sharded)
            return differs(
                rank, name,
                fmt::format("is a shard on some ranks, whole on others (rank {})", rank));
        if (wanted.sharded)
            known.shards.insert(known.shards.end(), wanted.shards.begin(), wanted.shards.end());
    }
    for (const auto& [name, known] : all)
        if (!known.sharded && !own.contains(name))
            return differs(rank, name, fmt::format("is on rank 0, but not on rank {}", rank));
    return {};
}

}  // namespace

std::string write_manifest(const Entries& entries) {
    Json json = Json::object();
    for (const auto& [name, entry] : entries) {
        Json parts = Json::array();
        if (entry.sharded)
            for (const EntryPart& part : entry.parts)
                parts.push_back({part.first_row, part.rows, part.device});
        json[name] = {{"dtype", entry.dtype},
                      {"shape", entry.shape},
                      {"sharded", entry.sharded},
                      {"parts", std::move(parts)}};
    }
    return json.dump();
}

Result<Manifest> merge_manifests(const std::vector<std::string>& texts) {
    TRAINER_ASSIGN(Manifest all, read_manifest(texts.at(0), 0));
    for (int rank = 1; rank < static_cast<int>(texts.size()); ++rank) {
        TRAINER_ASSIGN(const Manifest own,
                       read_manifest(texts[static_cast<std::size_t>(rank)], rank));
        TRAINER_TRY(merge(all, own, rank));
    }
    for (auto& [name, wanted] : all)
        std::sort(wanted.shards.begin(), wanted.shards.end(), [](const Shard& a, const Shard& b) {
            return std::tuple(a.first_row, a.rank, a.device) <
                   std::tuple(b.first_row, b.rank, b.device);
        });
    return all;
}

Result<> check_cover(const Manifest& manifest) {
    for (const auto& [name, wanted] : manifest) {
        if (!wanted.sharded) continue;
        int64_t at = 0;
        for (const Shard& shard : wanted.shards) {
            if (shard.rows == 0) continue;
            if (shard.first_row != at)
                return differs(shard.rank, name,
                               fmt::format("has row {} {}: rank {} has rows from {} on",
                                           std::min(at, shard.first_row),
                                           shard.first_row < at ? "twice" : "nowhere", shard.rank,
                                           shard.first_row));
            at += shard.rows;
        }
        const int64_t rows = wanted.shape.empty() ? 1 : wanted.shape[0];
        if (at != rows) return differs(-1, name, fmt::format("has row {} of {} nowhere", at, rows));
    }
    return {};
}

Result<std::vector<std::string>> match(const Manifest& manifest, const FileHeader& header,
                                       Strictness strictness) {
    std::map<std::string_view, const StoredEntry*> stored;
    for (const StoredEntry& entry : header.entries) stored.emplace(entry.name, &entry);
    std::vector<std::string> missing;
    for (const auto& [name, wanted] : manifest) {
        const auto found = stored.find(name);
        if (found == stored.end()) {
            if (!strictness.allow_missing)
                return fail(TUTTI_ERR_INVALID,
                            "it has no entry '{}': it is of another or an older model", name)
                    .advice(
                        "restore the model that it was saved from, or allow missing entries "
                        "(allow_missing), which then keep the values they have");
            missing.push_back(name);
            continue;
        }
        const StoredEntry& there = *found->second;
        if (there.dtype != wanted.dtype || there.shape != wanted.shape)
            return fail(TUTTI_ERR_INVALID, "entry '{}' is {} in the file, but {} in the model",
                        name, describe(there.dtype, there.shape),
                        describe(wanted.dtype, wanted.shape))
                .advice("restore the model that it was saved from");
        stored.erase(found);
    }
    if (!stored.empty() && !strictness.allow_extra)
        return fail(TUTTI_ERR_INVALID,
                    "it has an entry '{}' that the model does not have: it is of another model",
                    stored.begin()->first)
            .advice(
                "restore the model that it was saved from, or allow extra entries (allow_extra)");
    return missing;
}

}  // namespace tutti::trainer::checkpoint
