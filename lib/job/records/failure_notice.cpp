#include "job/records/failure_notice.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/told_error.h"
#include "wait/pace.h"

namespace tutti {
namespace {

constexpr int64_t stale_notice_s = 10;  // before this rank came
constexpr int notice_patience_ms = 1000;
constexpr unsigned notice_stays_us = 900'000;

}  // namespace

void FailureNotice::publish(Store& store, const Error& failure) const {
    const bool first = post(store, failure);
    // Stay a moment, so that waiting ranks can read the notice.
    if (store.forgets() && (rank_ == 0 || first))
        Pace(Deadline(), {.sleep_us = notice_stays_us}).pause();
}

bool FailureNotice::post(Store& store, const Error& failure) const {
    ByteWriter out;
    out.put(wall_clock_s()).put(failure.code).put(failure.rank).put_text(error_text(failure));
    const Bytes bytes = out.take();
    const std::string_view notice = as_text(bytes);
    std::string existing;
    const Deadline patience = Deadline::after_ms(notice_patience_ms);
    const Result<bool> first = store.claim(key_, notice, existing, patience);
    Result<> done;
    if (!first)
        done = tl::unexpected(first.error());
    else if (!*first && !decode(existing))
        done = store.set(key_, notice, patience);
    if (!done) log::debug("rank {}: {}", rank_, done.error().message);
    return first && *first;
}

std::optional<Error> FailureNotice::published(Store& store) const {
    const auto text = store.try_get(key_, Deadline::after_ms(notice_patience_ms));
    if (!text || !*text) return {};
    return decode(**text);
}

Result<bool> FailureNotice::publish_with_process_end(PeerDirectory& directory,
                                                     Deadline deadline) const {
    const std::string text =
        fmt::format("the process of rank {} ended while it was joining", rank_);
    // The store puts the time before it.
    const Bytes notice = ByteWriter().put(Code::peer_lost).put(rank_).put_text(text).take();
    return directory.set_will(key_, as_text(notice), deadline);
}

std::optional<Error> FailureNotice::decode(std::string_view text) const {
    ByteReader in(as_bytes(text));
    const auto at_s = in.get<int64_t>();
    const auto code = in.get<Code>();
    const auto rank = in.get<Rank>();
    Error told = told_error(code, rank, size_, in.get_text(PeerRecord::max_text_bytes));
    if (!in.at_end() || at_s < started_s_ - stale_notice_s) return {};
    return told;
}

}  // namespace tutti
