// Making smaller communicators out of one.
#include <algorithm>

#include "base/catching.h"
#include "base/log.h"
#include "comm/at_exit.h"
#include "comm/communicator.h"
#include "net/serving.h"

namespace tutti {
namespace {

/// What every rank tells the others.
struct Wish {
    int64_t color = 0;  // negative: no part of it
    int64_t key = 0;
    int64_t first_free_id = 0;
    int64_t host = 0;
    int64_t splits_devices = 0;
};

constexpr uint32_t most_claims = 1000;
constexpr uint32_t claims_apart = 61;  // a prime: of communicators that are split at the same time

Call allgather_of_wishes() {
    Call call;
    call.collective = Collective::allgather;
    call.count = sizeof(Wish) / sizeof(int64_t);
    call.dtype = Dtype::int64;
    return call;
}

/// Which communicator this is among those of one split: colours in ascending order.
uint32_t index_of(int64_t color, const std::vector<Wish>& wishes) {
    std::set<int64_t> colors;
    for (const Wish& wish : wishes)
        if (wish.color >= 0) colors.insert(wish.color);
    return static_cast<uint32_t>(std::distance(colors.begin(), colors.find(color)));
}

}  // namespace

// All ranks must choose alike, so all must know before the first choice. log2(ranks) messages a
// rank.
Result<> Communicator::learn_hosts() {
    const bool one_host = planner_.selection_input().one_host;
    if (one_host || size() == 2) {
        set_hosts(Hosts::in_blocks(size(), one_host ? size() : 1));
        return {};
    }
    Call call;
    call.collective = Collective::allgather;
    call.count = 1;
    call.dtype = Dtype::uint64;
    call.algorithm = "bruck";
    const uint64_t mine = endpoint_->host_hash();
    std::vector<uint64_t> hosts(static_cast<std::size_t>(size()));
    TUTTI_TRY(run_own(call, &mine, hosts.data()));
    set_hosts(Hosts::by_label(hosts));
    return {};
}

void Communicator::set_hosts(Hosts hosts) {
    group_.set_hosts(std::move(hosts));
    planner_.use(*group_.hosts());
}

Result<std::shared_ptr<Communicator>> Communicator::split_host(int key) {
    // The top bit would be "no colour".
    const auto host = static_cast<int64_t>(endpoint_->host_hash() >> 1);
    return split_by("split host", host, key);
}

Result<std::shared_ptr<Communicator>> Communicator::split(int color, int key) {
    return split_by("split", color, key);
}

Result<std::shared_ptr<Communicator>> Communicator::dup() {
    return split_by("dup", 0, 0);
}

// What follows may then take it for granted that every rank does the same.
Result<> Communicator::begin(std::string_view name) {
    Call call;
    call.collective = Collective::barrier;
    call.name = CallName::of(name).value();
    return run_own(call, nullptr, nullptr);
}

// So many ids that none of these ranks has used: whoever shares two communicators tells them apart.
// Other threads may split other communicators at the same time, in another order on each rank: a
// claim that is not everybody's is made anew, each time further away.
Result<uint32_t> Communicator::claim_ids(int64_t first_free, uint32_t count) {
    for (uint32_t attempt = 0; attempt < most_claims; ++attempt) {
        const auto first =
            static_cast<uint32_t>(first_free) + attempt * (group_.id() % claims_apart);
        TUTTI_ASSIGN(const bool all, all_agree(endpoint_->claim_ids(first, count)));
        if (all) return first;
        Call most;
        most.count = 1;
        most.dtype = Dtype::int64;
        most.op = Op::max;
        const int64_t mine = endpoint_->first_free_id();
        TUTTI_TRY(run_own(most, &mine, &first_free));
    }
    return fail(Code::system, "rank {}: other threads split communicators all the time", rank());
}

Result<std::shared_ptr<Communicator>> Communicator::split_by(std::string_view name, int64_t color,
                                                             int key) {
    TUTTI_TRY(may_call());
    TUTTI_TRY(begin(name));
    const Wish mine{color, key, endpoint_->first_free_id(),
                    static_cast<int64_t>(endpoint_->host_hash()), splits_devices()};
    std::vector<Wish> wishes(static_cast<std::size_t>(size()));
    TUTTI_TRY(run_own(allgather_of_wishes(), &mine, wishes.data()));
    int64_t first_free = 0;
    for (const Wish& wish : wishes) first_free = std::max(first_free, wish.first_free_id);
    TUTTI_ASSIGN(const uint32_t first_id, claim_ids(first_free, index_of(-1, wishes)));
    const uint32_t id = first_id + index_of(color, wishes);
    const bool with_devices =
        std::all_of(wishes.begin(), wishes.end(), [](const Wish& w) { return w.splits_devices; });

    std::vector<Rank> chosen;
    for (Rank r = 0; r < size(); ++r) {
        if (wishes[static_cast<std::size_t>(r)].color == color) chosen.push_back(r);
    }
    std::stable_sort(chosen.begin(), chosen.end(), [&](Rank a, Rank b) {
        return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
    });
    Result<std::shared_ptr<DeviceGroup>> group;
    if (with_devices) {
        // Colours in their order: the library's are 32 bits.
        const auto own = std::find(chosen.begin(), chosen.end(), rank());
        group = devices_.group->split(
            {color < 0 ? -1 : static_cast<int32_t>(index_of(color, wishes)),
             static_cast<Rank>(own - chosen.begin()), static_cast<Rank>(chosen.size()),
             [this](bool begun) { return all_agree(begun).value_or(false); }},
            Deadline::after_ms(endpoint_->config().timeout_ms));
    }
    if (color < 0) return std::shared_ptr<Communicator>();
    std::vector<uint64_t> hosts;
    for (Rank& rank : chosen) {
        hosts.push_back(static_cast<uint64_t>(wishes[static_cast<std::size_t>(rank)].host));
        rank = group_.in_job(rank);
    }
    std::shared_ptr<Communicator> part;
    auto complete = catching([&]() -> Result<> {
        part = make_part(std::move(chosen), id, Hosts::by_label(hosts));
        TUTTI_TRY(part->assemble(agreement_));
        return with_devices ? part->take_devices(devices_, std::move(group)) : Result<>{};
    });
    if (complete) return part;
    return tl::unexpected(part_failed(part.get(), std::move(complete).error()));
}

std::shared_ptr<Communicator> Communicator::make_part(std::vector<Rank> members, uint32_t id,
                                                      Hosts hosts) {
    const bool one_host = hosts.count() == 1;
    const Rank me = group_.in_job(rank());
    const auto at = std::find(members.begin(), members.end(), me);
    const auto rank = static_cast<Rank>(at - members.begin());
    std::shared_ptr<Communicator> part(
        new Communicator(endpoint_, Group(id, std::move(members), rank), one_host));
    part->set_hosts(std::move(hosts));
    endpoint_->add(id, part.get());
    at_exit::add(part);
    return part;
}

// Its first operation agrees whether all could join the intrinsics; that it takes place also means
// that everyone is there. Who is lost or gives up on the way is waited for by nobody, be it that
// only the communicator that it is made of hears of it.
Result<> Communicator::assemble(Agreement& parent) {
    if (size() == 1) return {};
    const net::GiveUpWhen parent_over(parent.ended()), over(agreement_.ended());
    const auto deadline = Deadline::after_ms(endpoint_->config().timeout_ms);
    endpoint_->meet_neighbours(group_, deadline);
    Endpoint::Intrinsics joined =
        endpoint_->join_intrinsics(group_, planner_.selection_input().one_host, deadline);
    if (auto cause = parent.over()) return tl::unexpected(*std::move(cause));
    TUTTI_ASSIGN(const bool all, all_agree(joined.group != nullptr));
    if (all) planner_.use(std::move(joined));
    return {};
}

// Other members may still be waiting for this one. What has ended this communicator is the cause of
// what went wrong in its part; a part that could not even be made tells nobody, so this one does.
Error Communicator::part_failed(Communicator* part, const Error& error) {
    const Error cause = agreement_.over().value_or(error);
    Error told = cause;
    if (!part) {
        told.rank = rank();
        agreement_.raise(told);
        return cause;
    }
    told.rank = part->rank();
    told.message = fmt::format("rank {} could not join it: {}", part->rank(), cause.message);
    part->agreement_.raise(told);
    return cause;
}

}  // namespace tutti
