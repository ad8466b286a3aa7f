// What a rank leaves in the store: where it can be reached, and why the job could not start.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/told_error.h"
#include "job/endpoint.h"
#include "job/records/rank_owner.h"

namespace tutti {
namespace {

// A word that was left so long before this rank came is not about its job.
constexpr int64_t stale_word_s = 10;
constexpr int publish_patience_ms = 60'000;  // if joining has no deadline
constexpr int word_patience_ms = 1000;
constexpr unsigned word_stays_us = 900'000;
constexpr int64_t first_look_ns = 50'000'000, last_look_ns = 400'000'000;
constexpr int64_t most_starving_ns = 1'000'000'000;
constexpr int missing_patience_ms = 5000;  // for the store to say who has not come
constexpr Rank max_named_ranks = 16;       // in a message about who is missing

}  // namespace

std::string Endpoint::key(Rank rank) const {
    return fmt::format("{}/rank/{}", generation_, rank);
}

// A rank's number is taken once. What a killed run left behind in a store that outlives it (a
// directory) is recognised by its dead process and replaced.
Result<> Endpoint::claim_number() {
    const auto patience =
        Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(publish_patience_ms)));
    const RankOwner self = RankOwner::this_process(machine_id_);
    const std::string claim_key = key(config_.rank) + "/owner";
    std::string existing;
    TUTTI_ASSIGN(const bool mine, store_->claim(claim_key, self.encode(), existing, patience));
    if (!mine) {
        const RankOwner owner = RankOwner::decode(existing);
        if (!self.outlived(owner)) return taken_error(self, owner);
        TUTTI_TRY(store_->set(claim_key, self.encode(), patience));
    }
    claimed_ = may_tell_ = true;
    be_watched(patience);
    return {};
}

// Should this process be killed while it joins, the others hear of it.
void Endpoint::be_watched(Deadline patience) {
    const std::string text =
        fmt::format("the process of rank {} ended while it was joining", config_.rank);
    const Bytes word = ByteWriter().put(Code::peer_lost).put(config_.rank).put_text(text).take();
    auto will = store_->leave_will(word_key(), as_text(word), patience);
    if (!will) return log::debug("rank {}: {}", config_.rank, will.error().message);
    will_ = std::move(*will);
    if (!will_) watch_.emplace(RankOwner::this_process(machine_id_), config_.rank, config_.size);
}

// What a rank that waits looks for, now and then: why the others cannot come.
std::optional<Error> Endpoint::trouble() {
    if (now_ns() < look_ns_) return {};
    look_pause_ns_ = std::clamp(2 * look_pause_ns_, first_look_ns, last_look_ns);
    look_ns_ = now_ns() + look_pause_ns_;
    if (net::Acceptor::starving_ns() > most_starving_ns)
        return Error{
            Code::system, config_.rank, EMFILE,
            fmt::format("rank {} has no file descriptors left for the connections of other "
                        "ranks: raise `ulimit -n`",
                        config_.rank)};
    // A rank that its parent knows hears through it.
    if (parent_there_ && !watch_) return {};
    if (auto word = word_left()) return word;
    if (!watch_) return {};
    const Deadline patience = Deadline::after_ms(word_patience_ms);
    const auto ended = watch_->ended([&](Rank rank) -> std::optional<std::string> {
        auto claim = store_->look(key(rank) + "/owner", patience);
        return claim ? std::move(*claim) : std::nullopt;
    });
    if (!ended) return {};
    // It may have said why before it went.
    if (auto word = word_left()) return word;
    return Error{Code::peer_lost, *ended, 0,
                 fmt::format("the process of rank {} ended while it was joining", *ended)};
}

Result<> Endpoint::publish() {
    const auto patience =
        Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(publish_patience_ms)));
    PeerRecord record;
    record.size = config_.size;
    record.host_id = host_id_;
    record.control = control_address_;
    for (const auto& transport : transports_)
        record.addresses.emplace(transport->name(), transport->address());
    TUTTI_TRY(store_->set(key(config_.rank), record.encode(), patience));
    published_ = true;
    return {};
}

tl::unexpected<Error> Endpoint::taken_error(const RankOwner& self, const RankOwner& owner) const {
    if (self.sees(owner))
        return fail_rank(Code::invalid, config_.rank,
                         "rank {} is already taken by process {} in {}: two processes have the "
                         "same TUTTI_RANK, or another run uses this store with the same TUTTI_JOB",
                         config_.rank, owner.pid, store_->describe());
    return fail_rank(
        Code::invalid, config_.rank,
        "rank {} is already taken by process {} of another {} in {}, and whether that still runs "
        "cannot be seen from here. If it does, give each rank its own TUTTI_RANK and each run its "
        "own TUTTI_JOB; if it was killed, start with another TUTTI_JOB, or remove what job '{}' "
        "left in that store",
        config_.rank, owner.pid,
        owner.machine == self.machine ? "container (pid namespace)"
                                      : "machine, or of an earlier boot",
        store_->describe(), config_.job);
}

// For those who come after the others have given up: nobody is left to tell them. The first word
// stays; what fails later fails because of it. A directory store forgets it with its writer.
void Endpoint::leave_word(const Error& error) {
    if (!may_tell_) return;
    ByteWriter out;
    out.put(wall_clock_s()).put(error.code).put(error.rank).put_text(error.message);
    const Bytes bytes = out.take();
    const std::string_view word = as_text(bytes);
    std::string existing;
    const Deadline patience = Deadline::after_ms(word_patience_ms);
    const Result<bool> first = store_->claim(word_key(), word, existing, patience);
    Result<> left;
    if (!first)
        left = tl::unexpected(first.error());
    else if (!*first && !read_word(existing))
        left = store_->set(word_key(), word, patience);
    if (!left) log::debug("rank {}: {}", config_.rank, left.error().message);
    // Ranks that wait look for it meanwhile.
    if (store_->forgets() && (config_.rank == 0 || (first && *first))) ::usleep(word_stays_us);
}

// Why the job's start has failed. Looked for as long as a busy or distant store takes to answer.
std::optional<Error> Endpoint::word_left() {
    if (!store_) return {};
    const auto text = store_->look(word_key(), Deadline::after_ms(word_patience_ms));
    if (!text || !*text) return {};
    return read_word(**text);
}

// Nothing if it is about an earlier job of the same name.
std::optional<Error> Endpoint::read_word(std::string_view text) const {
    ByteReader in(as_bytes(text));
    const auto at_s = in.get<int64_t>();
    const auto code = in.get<Code>();
    const auto rank = in.get<Rank>();
    Error told = told_error(code, rank, config_.size, in.get_text(PeerRecord::max_text_bytes));
    if (!in.at_end() || at_s < started_s_ - stale_word_s) return {};
    return told;
}

// Who did not come: the store knows who has been there. Nobody is named whom it was not asked
// about.
Error Endpoint::missing_error(int64_t waited_ms) {
    std::string names, silence;
    Rank missing = 0, first = nobody;
    const Deadline patience = Deadline::after_ms(missing_patience_ms);
    for (Rank rank = 0; rank < config_.size; ++rank) {
        if (rank == config_.rank) continue;
        const auto record = store_->look(key(rank), patience);
        if (!record) {
            silence = fmt::format("the store does not answer who of ranks {} to {} has come: {}",
                                  rank, config_.size - 1, record.error().message);
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
        text =
            fmt::format("all ranks have come, but the job was not complete after {} ms", waited_ms);
    else
        text = fmt::format("{}{} of {} ranks did not come within {} ms: rank{} {}{} (store {}){}{}",
                           silence.empty() ? "" : "at least ", missing, config_.size, waited_ms,
                           missing == 1 ? "" : "s", names, missing > max_named_ranks ? ", …" : "",
                           store_->describe(), silence.empty() ? "" : "; ", silence);
    if (const std::string also = store_->suspicion(); !also.empty()) text += "; " + also;
    return {Code::timeout, first, 0, std::move(text)};
}

}  // namespace tutti
