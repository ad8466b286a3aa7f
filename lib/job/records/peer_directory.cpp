#include "job/records/peer_directory.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace tutti {
namespace {

constexpr int missing_patience_ms = 5000;  // for the store to tell which ranks are missing
constexpr Rank max_named_ranks = 16;       // in a message about missing ranks
constexpr std::string_view in_the_store = "in the store";

ErrorResult taken_error(Rank rank, const RankOwner& self, const RankOwner& owner,
                        const std::string& job, const Store& store) {
    if (self.sees(owner))
        return fail_rank(Code::invalid, rank, "rank {} is already taken by process {} in {}", rank,
                         owner.pid, store.describe())
            .advice(
                "give each process of a run its own TUTTI_RANK, and each run its own TUTTI_JOB");
    return fail_rank(Code::invalid, rank,
                     "rank {} is already taken by process {} of another {} in {}; this process "
                     "cannot see "
                     "whether that one still runs",
                     rank, owner.pid,
                     owner.machine == self.machine ? "container (pid namespace)"
                                                   : "machine, or of an earlier boot",
                     store.describe())
        .advice(
            "if it runs, give each rank its own TUTTI_RANK and each run its own TUTTI_JOB; if it "
            "was killed, start with another TUTTI_JOB, or remove what job '{}' left in that store",
            job);
}

}  // namespace

std::string PeerDirectory::key(const std::string& generation, Rank rank) {
    return fmt::format("{}/rank/{}", generation, rank);
}

// A claim that a killed run left behind in a store that outlives it (a directory) is recognised by
// its dead process and replaced.
Result<> PeerDirectory::claim(const RankOwner& self, const std::string& job, Deadline deadline) {
    std::string existing;
    TUTTI_ASSIGN(const bool mine,
                 store_->claim(claim_key(rank_), self.encode(), existing, deadline));
    if (!mine) {
        const RankOwner owner = RankOwner::decode(existing);
        if (!self.outlived(owner)) return taken_error(rank_, self, owner, job, *store_);
        TUTTI_TRY(store_->set(claim_key(rank_), self.encode(), deadline));
    }
    claimed_ = true;
    return {};
}

std::optional<std::string> PeerDirectory::claim_of(Rank rank, Deadline deadline) const {
    auto claim = store_->try_get(claim_key(rank), deadline);
    return claim ? std::move(*claim) : std::nullopt;
}

Result<> PeerDirectory::publish(const PeerRecord& own, Deadline deadline) {
    TUTTI_TRY(store_->set(key(rank_), own.encode(), deadline));
    published_ = true;
    return {};
}

Result<bool> PeerDirectory::set_will(const std::string& key, std::string_view value,
                                     Deadline deadline) {
    TUTTI_ASSIGN(will_, store_->set_will(key, value, deadline));
    return will_ != nullptr;
}

void PeerDirectory::withdraw_records(Deadline deadline) {
    if (!store_ || !claimed_) return;
    for (const std::string& name : {key(rank_), claim_key(rank_)})
        if (auto removed = store_->remove(name, deadline); !removed) {
            log::debug("rank {}: {}", rank_, removed.error().message);
            break;  // the store would not answer the second either
        }
}

const PeerRecord* PeerDirectory::known(Rank rank) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : &found->second;
}

Result<> PeerDirectory::add(Rank rank, std::string_view text) {
    TUTTI_TRY(keep(rank, text, "from the control tree"));
    return {};
}

Result<const PeerRecord*> PeerDirectory::find(Rank rank, Deadline deadline) {
    if (const PeerRecord* kept = known(rank)) return kept;
    TUTTI_ASSIGN(const std::string text, store_->get(key(rank), deadline));
    return keep(rank, text, in_the_store);
}

Result<const PeerRecord*> PeerDirectory::find_if_there(Rank rank, Deadline deadline) {
    if (const PeerRecord* kept = known(rank)) return kept;
    TUTTI_ASSIGN(const auto text, store_->try_get(key(rank), deadline));
    if (!text) return fail_rank(Code::peer_lost, rank, "rank {} has left the job's store", rank);
    return keep(rank, *text, in_the_store);
}

Result<const PeerRecord*> PeerDirectory::keep(Rank rank, std::string_view text,
                                              std::string_view from) {
    auto record = PeerRecord::decode(text);
    if (!record)
        return fail_rank(Code::system, rank, "the record of rank {} {} is malformed", rank, from)
            .advice(malformed_record_advice);
    // Another thread may have stored the record meanwhile, and pointers to it may be in use.
    const std::lock_guard lock(mutex_);
    return &peers_.try_emplace(rank, std::move(*record)).first->second;
}

Error PeerDirectory::missing_error(int64_t waited_ms) const {
    std::string names, silence;
    Rank missing = 0, first = nobody;
    const Deadline patience = Deadline::after_ms(missing_patience_ms);
    for (Rank rank = 0; rank < size_; ++rank) {
        if (rank == rank_) continue;
        const auto record = store_->try_get(key(rank), patience);
        if (!record) {
            silence = fmt::format("the store does not answer which of ranks {} to {} joined: {}",
                                  rank, size_ - 1, record.error().message);
            break;
        }
        if (*record) continue;
        if (first == nobody) first = rank;
        if (++missing <= max_named_ranks)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
    }
    std::string text;
    if (missing == 0 && !silence.empty())
        text = fmt::format("the job was not complete after {} ms, and {}", waited_ms, silence);
    else if (missing == 0)
        text = fmt::format(
            "all ranks reached the store, but did not connect to each other within {} ms",
            waited_ms);
    else
        text = fmt::format("{}{} of {} ranks did not join within {} ms: rank{} {}{} (store {}){}{}",
                           silence.empty() ? "" : "at least ", missing, size_, waited_ms,
                           missing == 1 ? "" : "s", names, missing > max_named_ranks ? ", …" : "",
                           store_->describe(), silence.empty() ? "" : "; ", silence);
    std::string advice =
        silence.empty() ? "check that the ranks can connect to each other (TUTTI_IFACE, firewalls)"
                        : "check that the process that serves the store still runs";
    if (missing > 0)
        advice = fmt::format(
            "start rank{} {}{} with the same store, TUTTI_SIZE and TUTTI_JOB; if {} only late, "
            "raise TUTTI_TIMEOUT_MS",
            missing == 1 ? "" : "s", names, missing > max_named_ranks ? ", …" : "",
            missing == 1 ? "it is" : "they are");
    if (std::string own = store_->remedy(); missing > 0 && !own.empty()) advice = std::move(own);
    if (const std::string also = store_->suspicion(); !also.empty()) {
        text += "; " + also;
        advice = "compare TUTTI_SECRET and TUTTI_JOB on all ranks";
    }
    return {Code::timeout, first, 0, std::move(text), std::move(advice)};
}

}  // namespace tutti
