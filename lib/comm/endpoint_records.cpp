// What a rank leaves in the store: where it can be reached, and why the job could not start.
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/log.h"
#include "comm/endpoint.h"

namespace tutti {
namespace {

constexpr std::size_t max_record_bytes = 16 * 1024;
// A word that was left so long before this rank came is not about its job.
constexpr int64_t stale_word_s = 10;
constexpr int word_patience_ms = 100;
constexpr Rank max_named_ranks = 16;  // in a message about who is missing

}  // namespace

std::string Endpoint::PeerRecord::encode() const {
    ByteWriter out;
    out.put(size).put_text(host_id).put_text(control).put(static_cast<uint32_t>(addresses.size()));
    for (auto& [transport, address] : addresses) out.put_text(transport).put_text(address);
    return std::string(as_text(out.take()));
}

std::optional<Endpoint::PeerRecord> Endpoint::PeerRecord::decode(std::string_view text) {
    ByteReader in(as_bytes(text));
    PeerRecord record;
    record.size = in.get<Rank>();
    record.host_id = in.get_text(max_record_bytes);
    record.control = in.get_text(max_record_bytes);
    const auto count = in.get<uint32_t>();
    for (uint32_t i = 0; i < count && in.ok(); ++i) {
        std::string transport = in.get_text(max_record_bytes);
        record.addresses[std::move(transport)] = in.get_text(max_record_bytes);
    }
    if (!in.at_end()) return std::nullopt;
    return record;
}

std::string Endpoint::key(Rank rank) const {
    return fmt::format("{}/rank/{}", generation_, rank);
}

// A rank's number is taken once. What a killed run left behind in a store that outlives it (a
// directory) is recognised by its dead process and replaced.
Result<> Endpoint::publish() {
    const std::string claim = fmt::format("{} {}", machine_id_, ::getpid());
    const std::string claim_key = key(config_.rank) + "/owner";
    std::string existing;
    TUTTI_ASSIGN(bool mine, store_->claim(claim_key, claim, existing));
    if (!mine) {
        const auto space = existing.find(' ');
        const bool here = existing.substr(0, space) == machine_id_;
        const long pid = space == std::string::npos ? 0 : std::atol(existing.c_str() + space + 1);
        const bool gone =
            here && pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
        if (!gone)
            return fail_rank(
                Code::invalid, config_.rank,
                "rank {} is already taken by process {}{} in {}: two processes have the "
                "same TUTTI_RANK, or another run uses this store with the same TUTTI_JOB",
                config_.rank, pid, here ? "" : " of another machine", store_->describe());
        TUTTI_TRY(store_->set(claim_key, claim));
    }
    published_ = true;
    PeerRecord record;
    record.size = config_.size;
    record.host_id = host_id_;
    record.control = control_address_;
    for (const auto& transport : transports_)
        record.addresses.emplace(transport->name(), transport->address());
    return store_->set(key(config_.rank), record.encode());
}

// For those who come after the others have given up: nobody is left to tell them. The first word
// stays; what fails later fails because of it. A directory store forgets it with its writer.
void Endpoint::leave_word(const Error& error) {
    if (!published_) return;
    ByteWriter out;
    out.put(wall_clock_s()).put(error.code).put(error.rank).put_text(error.message);
    const Bytes bytes = out.take();
    const std::string_view word = as_text(bytes);
    std::string existing;
    const Result<bool> first = store_->claim(word_key(), word, existing);
    Result<> left;
    if (!first)
        left = tl::unexpected(first.error());
    else if (!*first && !read_word(existing))
        left = store_->set(word_key(), word);
    if (!left) log::debug("rank {}: {}", config_.rank, left.error().message);
}

// Why the job's start has failed. Looked for as long as a busy or distant store takes to answer.
std::optional<Error> Endpoint::word_left() {
    if (!store_) return {};
    const auto text = store_->get(word_key(), Deadline::after_ms(word_patience_ms));
    if (!text) return {};
    return read_word(*text);
}

// Nothing if it is about an earlier job of the same name.
std::optional<Error> Endpoint::read_word(std::string_view text) const {
    ByteReader in(as_bytes(text));
    const auto at_s = in.get<int64_t>();
    Error error;
    error.code = in.get<Code>();
    error.rank = in.get<Rank>();
    error.message = in.get_text(max_record_bytes);
    if (!in.at_end() || at_s < started_s_ - stale_word_s) return {};
    return error;
}

// Who did not come: the store knows who has been there.
Error Endpoint::missing_error() {
    std::string names;
    Rank missing = 0, first = nobody;
    for (Rank rank = 0; rank < std::min<Rank>(config_.size, 4096); ++rank) {
        if (rank == config_.rank || store_->get(key(rank), Deadline::after_ms(1))) continue;
        if (first == nobody) first = rank;
        if (++missing <= max_named_ranks)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
    }
    if (missing == 0)
        return {Code::timeout, nobody, 0,
                fmt::format("all ranks have come, but the job was not complete after {} ms",
                            config_.timeout_ms)};
    return {Code::timeout, first, 0,
            fmt::format("{} of {} ranks did not come within {} ms: rank{} {}{} (store {})", missing,
                        config_.size, config_.timeout_ms, missing == 1 ? "" : "s", names,
                        missing > max_named_ranks ? ", …" : "", store_->describe())};
}

}  // namespace tutti
