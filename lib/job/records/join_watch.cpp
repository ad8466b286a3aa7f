#include "job/records/join_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "net/acceptor.h"

namespace tutti {
namespace {

constexpr int64_t first_look_ns = 50'000'000, last_look_ns = 400'000'000;
constexpr int64_t most_starving_ns = 1'000'000'000;
constexpr int claims_patience_ms = 1000;

}  // namespace

void JoinWatch::begin(Deadline deadline) {
    const auto noticed = notice_.publish_with_process_end(directory_, deadline);
    if (!noticed) return log::debug("rank {}: {}", rank_, noticed.error().message);
    if (!*noticed) claims_.emplace(RankOwner::this_process(machine_), rank_, size_);
}

std::optional<Error> JoinWatch::trouble(bool has_parent, int64_t now_ns) {
    if (now_ns < look_ns_) return {};
    look_pause_ns_ = std::clamp(2 * look_pause_ns_, first_look_ns, last_look_ns);
    look_ns_ = now_ns + look_pause_ns_;
    if (net::Acceptor::starving_ns() > most_starving_ns)
        return Error{
            Code::system, rank_, EMFILE,
            fmt::format("rank {} has no file descriptors left for the connections of other ranks",
                        rank_),
            "raise the limit of open files of that process (ulimit -n)"};
    if (auto obstacle = directory_.store().obstacle()) return obstacle;
    if (has_parent && !claims_) return {};
    if (auto failure = notice_.published(directory_.store())) return failure;
    if (!claims_) return {};
    const Deadline patience = Deadline::after_ms(claims_patience_ms);
    const auto ended =
        claims_->ended([&](Rank rank) { return directory_.claim_of(rank, patience); });
    if (!ended) return {};
    // That rank may have published the cause before it ended.
    if (auto failure = notice_.published(directory_.store())) return failure;
    return Error{Code::peer_lost, *ended, 0,
                 fmt::format("the process of rank {} ended while it was joining", *ended)};
}

}  // namespace tutti
