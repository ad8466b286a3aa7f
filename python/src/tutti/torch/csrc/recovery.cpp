// Smaller groups after a failure: torch.distributed.shrink_group of torch 2.10 and newer.
#include <algorithm>

#include "backend.h"

namespace tutti_torch {
namespace {

constexpr int shrink_abort_flag = 1;  // torch.distributed's SHRINK_ABORT

/// The ranks that the communicator's latest agreement has found gone or has left out.
std::vector<int> agreed_lost(tutti_comm* comm, const char* operation) {
    std::vector<int> lost(static_cast<std::size_t>(tutti_comm_size(comm)));
    std::size_t count = 0;
    check(tutti_comm_lost(comm, lost.data(), lost.size(), &count), operation);
    lost.resize(count);
    return lost;
}

[[noreturn]] void throw_further_lost(std::vector<int> ranks, const std::vector<int>& excluded) {
    std::erase_if(ranks, [&](int rank) {
        return std::find(excluded.begin(), excluded.end(), rank) != excluded.end();
    });
    std::string named;
    for (const int rank : ranks) named += (named.empty() ? "" : ", ") + std::to_string(rank);
    const bool several = ranks.size() > 1;
    const std::string cause =
        c10::str(several ? "ranks " : "rank ", named, several ? " are" : " is",
                 " gone, too, and not in ranks_to_exclude. What to do: call shrink_group again, on "
                 "every rank that remains, and add ",
                 several ? "these ranks" : "this rank", " to ranks_to_exclude");
    throw CallError(TUTTI_ERR_PEER_LOST, ranks.front(), "shrink", cause,
                    "tutti shrink: Connection closed by peer: " + cause);
}

}  // namespace

// Torch computes the new group's members from the list, so the part must have exactly these. All
// ranks that remain take the same way, because they agree on the ranks that are gone.
c10::intrusive_ptr<c10d::Backend> Backend::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int shrink_flags,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    const std::vector<int> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
    const auto whole = group();
    if (shrink_flags & shrink_abort_flag) check(tutti_comm_revoke(whole->comm()), "shrink");
    return noting([&]() -> c10::intrusive_ptr<c10d::Backend> {
        const std::lock_guard one_at_a_time(issuing_);
        std::shared_ptr<Group> part = whole->shrink(excluded);
        const auto members = static_cast<std::size_t>(tutti_comm_size(part->comm()));
        if (members + excluded.size() < static_cast<std::size_t>(size_)) {
            part.reset();
            throw_further_lost(agreed_lost(whole->comm(), "shrink"), excluded);
        }
        return made_of(std::move(part), options);
    });
}

std::vector<int> Backend::lost_ranks() {
    constexpr const char* name = "lost_ranks";
    const auto whole = group();
    check(tutti_comm_revoke(whole->comm()), name);
    return noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        uint64_t bits = 0;
        check(tutti_comm_agree(whole->comm(), &bits), name);
        return agreed_lost(whole->comm(), name);
    });
}

}  // namespace tutti_torch
