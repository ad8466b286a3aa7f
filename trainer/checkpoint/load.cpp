#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/boundary.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/file.h"
#include "trainer/checkpoint/rank_group.h"

namespace tutti::trainer::checkpoint {
namespace {

using Json = nlohmann::json;

/// The file and all ranks' manifests, at rank 0. No value is touched before the file was verified
/// and matched against the manifests.
struct Source {
    CheckpointFile file;
    Manifest manifest;
    std::map<std::string_view, const StoredEntry*> stored;
};

Result<std::string> open_source(std::optional<Source>& source,
                                const std::vector<std::string>& manifests, const std::string& path,
                                Strictness strictness) {
    TRAINER_ASSIGN(Manifest manifest, merge_manifests(manifests));
    TRAINER_ASSIGN(CheckpointFile file, CheckpointFile::open(path));
    auto missing = match(manifest, file.header(), strictness);
    if (!missing)
        return fail(missing.error().status, "checkpoint '{}': {}", path, missing.error().message)
            .advice("{}", missing.error().advice);
    TRAINER_TRY(file.verify());
    source.emplace(Source{std::move(file), std::move(manifest), {}});
    const FileHeader& header = source->file.header();
    for (const StoredEntry& entry : header.entries) source->stored.emplace(entry.name, &entry);
    return Json{{"missing", *missing}, {"texts", header.texts}}.dump();
}

Result<Loaded> parse_reply(const std::string& reply) {
    const Json json = Json::parse(reply, nullptr, false);
    const auto texts = [](const Json& list) {
        return std::all_of(list.begin(), list.end(), [](const Json& j) { return j.is_string(); });
    };
    for (const char* key : {"texts", "missing"}) {
        const bool as_object = key == std::string_view("texts");
        if (!json.is_object() || !json.contains(key) ||
            !(as_object ? json.at(key).is_object() : json.at(key).is_array()) ||
            !texts(json.at(key)))
            return fail_rank(TUTTI_ERR_SYSTEM, 0,
                             "checkpoint: rank 0 sent a damaged answer: '{}' is missing or of "
                             "another type",
                             key)
                .advice("use the same version of tutti on every rank");
    }
    return Loaded{json.at("texts").get<Texts>(),
                  json.at("missing").get<std::vector<std::string>>()};
}

class Loading {
public:
    Loading(const Entries& entries, const Copier& copier, const RankGroup& group,
            const std::optional<Source>& source)
        : entries_(entries),
          copier_(copier),
          group_(group),
          source_(source),
          buffer_(piece_bytes) {}

    /// All ranks iterate over the entries by name. A rank that fails continues, so that the others
    /// do not wait for it, and returns its first error at the end.
    Result<> run(const std::vector<std::string>& missing) {
        const auto skipped = [&](const std::string& name) {
            return std::binary_search(missing.begin(), missing.end(), name);
        };
        if (group_.is_root()) {
            for (const auto& [name, wanted] : source_->manifest)
                if (!skipped(name)) TRAINER_TRY(send_entry(name, wanted));
        } else {
            for (const auto& [name, entry] : entries_)
                if (!skipped(name)) TRAINER_TRY(receive_entry(entry));
        }
        return outcome_;
    }

private:
    void keep_first_error(Result<> result) {
        if (!result && outcome_) outcome_ = std::move(result);
    }
    std::span<std::byte> piece(uint64_t left) {
        return std::span(buffer_).first(std::min<uint64_t>(piece_bytes, left));
    }
    void copy_to_part(const EntryPart& part, uint64_t at, std::span<const std::byte> bytes) {
        keep_first_error(
            part.copier_or(copier_).to_device(part.data + at, bytes.data(), bytes.size()));
    }

    Result<> send_entry(const std::string& name, const ManifestEntry& wanted) {
        const StoredEntry& stored = *source_->stored.find(name)->second;
        const uint64_t bytes = stored.end - stored.begin;
        if (wanted.sharded) {
            const auto rows = static_cast<uint64_t>(std::max<int64_t>(1, stored.shape[0]));
            for (const Shard& shard : wanted.shards)
                TRAINER_TRY(send_shard(stored, shard, bytes / rows));
            return {};
        }
        for (uint64_t at = 0; at < bytes; at += piece_bytes) {
            const auto read = piece(bytes - at);
            keep_first_error(source_->file.read(stored, at, read));
            TRAINER_TRY(group_.broadcast(read));
            for (const EntryPart& part : entries_.find(name)->second.parts)
                copy_to_part(part, at, read);
        }
        return {};
    }

    Result<> send_shard(const StoredEntry& stored, const Shard& shard, uint64_t row_bytes) {
        const uint64_t begin = static_cast<uint64_t>(shard.first_row) * row_bytes;
        const uint64_t bytes = static_cast<uint64_t>(shard.rows) * row_bytes;
        for (uint64_t at = 0; at < bytes; at += piece_bytes) {
            const auto read = piece(bytes - at);
            keep_first_error(source_->file.read(stored, begin + at, read));
            if (shard.rank == group_.rank())
                copy_to_part(part_of(entries_.find(stored.name)->second, shard), at, read);
            else
                TRAINER_TRY(group_.send(read, shard.rank));
        }
        return {};
    }

    Result<> receive_entry(const StateEntry& entry) {
        if (entry.sharded) {
            for (const EntryPart& part : entry.parts) {
                const uint64_t bytes = static_cast<uint64_t>(part.rows) * entry.row_bytes();
                for (uint64_t at = 0; at < bytes; at += piece_bytes) {
                    const auto got = piece(bytes - at);
                    TRAINER_TRY(group_.receive(got, 0));
                    copy_to_part(part, at, got);
                }
            }
            return {};
        }
        const uint64_t bytes = entry.bytes();
        for (uint64_t at = 0; at < bytes; at += piece_bytes) {
            const auto got = piece(bytes - at);
            TRAINER_TRY(group_.broadcast(got));
            for (const EntryPart& part : entry.parts) copy_to_part(part, at, got);
        }
        return {};
    }

    const Entries& entries_;
    const Copier& copier_;
    const RankGroup& group_;
    const std::optional<Source>& source_;
    std::vector<std::byte> buffer_;
    Result<> outcome_;
};

}  // namespace

Result<Loaded> load(const Entries& entries, const Copier& copier, tutti_comm* comm,
                    const std::string& path, Strictness strictness, bool* began) {
    const RankGroup group(comm);
    TRAINER_ASSIGN(const std::vector<std::string> manifests,
                   group.begin_and_gather("checkpoint load", write_manifest(entries)));
    std::optional<Source> source;
    Result<std::string> ready = std::string();
    if (group.is_root())
        ready = contain([&] { return open_source(source, manifests, path, strictness); });
    TRAINER_ASSIGN(const std::string reply, group.broadcast(std::move(ready)));
    TRAINER_ASSIGN(Loaded loaded, parse_reply(reply));
    if (began) *began = true;
    TRAINER_TRY(group.agree(Loading(entries, copier, group, source).run(loaded.missing)));
    return loaded;
}

}  // namespace tutti::trainer::checkpoint
