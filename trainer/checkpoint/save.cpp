#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "trainer/base/boundary.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/file.h"
#include "trainer/checkpoint/rank_group.h"

namespace tutti::trainer::checkpoint {
namespace {

/// Rank 0's side: the header to be written, and the partial file.
class Saving {
public:
    Saving(const Entries& entries, const Copier& copier, const RankGroup& group, Manifest manifest,
           PartialFile file)
        : entries_(entries),
          copier_(copier),
          group_(group),
          manifest_(std::move(manifest)),
          file_(std::move(file)),
          buffer_(piece_bytes) {}

    Result<> begin(const Texts& texts) {
        header_.texts = texts;
        uint64_t at = 0;
        for (const auto& [name, wanted] : manifest_) {
            TRAINER_ASSIGN(const uint64_t bytes, checked_bytes(wanted.dtype, wanted.shape));
            header_.entries.push_back({name, wanted.dtype, wanted.shape, at, at + bytes, 0});
            at += bytes;
        }
        const std::string header = write_header(header_);
        if (header.size() - length_bytes > max_header_bytes)
            return invalid("names and texts come to {} bytes, a checkpoint has room for {}",
                           header.size() - length_bytes, max_header_bytes)
                .advice("save fewer entries, or shorter names and texts");
        return append(header);
    }

    /// Continues to receive after a failed write, because the senders do not know of it yet.
    Result<> write_all() {
        for (StoredEntry& stored : header_.entries) {
            const ManifestEntry& wanted = manifest_.find(stored.name)->second;
            if (wanted.sharded) {
                for (const Shard& shard : wanted.shards) TRAINER_TRY(append_shard(stored, shard));
            } else {
                const EntryPart& first = entries_.find(stored.name)->second.parts.front();
                append_own(stored, first, stored.end - stored.begin);
            }
        }
        return outcome_;
    }

    Result<> commit() {
        TRAINER_TRY(file_.overwrite_start(write_header(header_)));
        return file_.commit();
    }

private:
    Result<> append(std::string_view text) {
        return file_.append(std::as_bytes(std::span(text.data(), text.size())));
    }
    void append_piece(StoredEntry& stored, std::span<const std::byte> piece) {
        stored.checksum = checksum_of(stored.checksum, piece.data(), piece.size());
        if (outcome_) outcome_ = file_.append(piece);
    }
    void append_own(StoredEntry& stored, const EntryPart& part, uint64_t bytes) {
        const Copier& copier = part.copier_or(copier_);
        for (uint64_t at = 0; at < bytes && outcome_; at += piece_bytes) {
            const auto piece =
                std::span(buffer_).first(std::min<uint64_t>(piece_bytes, bytes - at));
            auto copied = copier.from_device(piece.data(), part.data + at, piece.size());
            if (copied)
                append_piece(stored, piece);
            else
                outcome_ = std::move(copied);
        }
    }
    /// Fails only if the communicator does.
    Result<> append_shard(StoredEntry& stored, const Shard& shard) {
        const uint64_t rows = static_cast<uint64_t>(std::max<int64_t>(1, stored.shape[0]));
        const uint64_t bytes =
            static_cast<uint64_t>(shard.rows) * ((stored.end - stored.begin) / rows);
        if (shard.rank == group_.rank()) {
            const StateEntry& own = entries_.find(stored.name)->second;
            append_own(stored, part_of(own, shard), bytes);
            return {};
        }
        for (uint64_t at = 0; at < bytes; at += piece_bytes) {
            const auto piece =
                std::span(buffer_).first(std::min<uint64_t>(piece_bytes, bytes - at));
            TRAINER_TRY(group_.receive(piece, shard.rank));
            append_piece(stored, piece);
        }
        return {};
    }

    const Entries& entries_;
    const Copier& copier_;
    const RankGroup& group_;
    Manifest manifest_;
    PartialFile file_;
    FileHeader header_;
    std::vector<std::byte> buffer_;
    Result<> outcome_;
};

Result<> prepare(std::optional<Saving>& saving, const Entries& entries, const Texts& texts,
                 const Copier& copier, const RankGroup& group,
                 const std::vector<std::string>& manifests, const std::string& path) {
    TRAINER_ASSIGN(Manifest manifest, merge_manifests(manifests));
    TRAINER_TRY(check_cover(manifest));
    TRAINER_ASSIGN(PartialFile file, PartialFile::create(path));
    saving.emplace(entries, copier, group, std::move(manifest), std::move(file));
    return saving->begin(texts);
}

/// The other ranks' side: sends every part in the order in which rank 0 receives them. Continues to
/// send after a failed copy, because rank 0 waits.
Result<> send_parts(const Entries& entries, const Copier& copier, const RankGroup& group) {
    Result<> outcome;
    std::vector<std::byte> buffer(piece_bytes);
    for (const auto& [name, entry] : entries) {
        if (!entry.sharded) continue;
        for (const EntryPart& part : entry.parts) {
            const uint64_t bytes = static_cast<uint64_t>(part.rows) * entry.row_bytes();
            for (uint64_t at = 0; at < bytes; at += piece_bytes) {
                const auto piece =
                    std::span(buffer).first(std::min<uint64_t>(piece_bytes, bytes - at));
                auto copied =
                    part.copier_or(copier).from_device(piece.data(), part.data + at, piece.size());
                if (!copied && outcome) outcome = std::move(copied);
                TRAINER_TRY(group.send(piece, 0));
            }
        }
    }
    return outcome;
}

Result<std::string> as_verdict(Result<> result) {
    if (result) return std::string();
    return tl::unexpected<Error>(std::move(result).error());
}

}  // namespace

Result<> Copier::move(std::byte* to, const std::byte* from, std::size_t bytes, bool inwards) const {
    if (copy == nullptr) {
        std::memcpy(to, from, bytes);
    } else if (const int code = copy(user, to, from, bytes, inwards ? 1 : 0); code != 0) {
        return fail(TUTTI_ERR_SYSTEM, "checkpoint: the copy {} a device failed with {}",
                    inwards ? "to" : "from", code)
            .advice("look at why the copy function of the program or the device failed");
    }
    return {};
}

const EntryPart& part_of(const StateEntry& entry, const Shard& shard) {
    return *std::find_if(entry.parts.begin(), entry.parts.end(),
                         [&](const EntryPart& part) { return part.device == shard.device; });
}

Result<> save(const Entries& entries, const Texts& texts, const Copier& copier, tutti_comm* comm,
              const std::string& path) {
    const RankGroup group(comm);
    TRAINER_ASSIGN(const std::vector<std::string> manifests,
                   group.begin_and_gather("checkpoint save", write_manifest(entries)));
    std::optional<Saving> saving;
    Result<> ready;
    // Rank 0 broadcasts its errors, exceptions included, because the other ranks wait for its
    // answer.
    if (group.is_root())
        ready = contain(
            [&] { return prepare(saving, entries, texts, copier, group, manifests, path); });
    TRAINER_TRY(group.broadcast(as_verdict(std::move(ready))));
    const Result<> written = contain(
        [&] { return group.is_root() ? saving->write_all() : send_parts(entries, copier, group); });
    TRAINER_TRY(group.agree(written));
    Result<> committed;
    if (group.is_root()) committed = contain([&] { return saving->commit(); });
    TRAINER_TRY(group.broadcast(as_verdict(std::move(committed))));
    return {};
}

}  // namespace tutti::trainer::checkpoint
