#include "comm/split.h"

#include <algorithm>
#include <set>

#include "base/catching.h"
#include "net/serving.h"

namespace tutti {
namespace {

constexpr uint32_t most_claims = 1000;
constexpr uint32_t claims_apart = 61;  // a prime: spreads claims of concurrent splits

/// Ties a part to the whole communicator for a scope.
class Tie {
public:
    Tie(Core& whole, Core& part) : whole_(whole) { whole.tie({part.self.lock(), &part}); }
    ~Tie() { whole_.tie(nullptr); }
    Tie(const Tie&) = delete;
    Tie& operator=(const Tie&) = delete;

private:
    Core& whole_;
};

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::split_host(int key) {
    // Shift, because a set top bit would make the colour negative.
    const auto host = static_cast<int64_t>(core_.endpoint->hashes().host >> 1);
    return Splitter(*this).by("split host", host, key);
}

Result<std::shared_ptr<Communicator>> Communicator::split(int color, int key) {
    return Splitter(*this).by("split", color, key);
}

Result<std::shared_ptr<Communicator>> Communicator::dup() {
    return Splitter(*this).by("dup", 0, 0);
}

Result<> Splitter::exchange_wishes(int64_t color, int key) {
    const Wish mine{color, key, core_.endpoint->first_free_id(),
                    static_cast<int64_t>(core_.endpoint->hashes().host), core_.offload->splits()};
    wishes_.resize(static_cast<std::size_t>(core_.size()));
    Call call;
    call.collective = Collective::allgather;
    call.count = sizeof(Wish) / sizeof(int64_t);
    call.dtype = Dtype::int64;
    return issuer_.run_own(call, &mine, wishes_.data());
}

/// The index of the colour's communicator among the parts of this split, by ascending colour.
uint32_t Splitter::index_of(int64_t color) const {
    std::set<int64_t> colors;
    for (const Wish& wish : wishes_)
        if (wish.color >= 0) colors.insert(wish.color);
    return static_cast<uint32_t>(std::distance(colors.begin(), colors.find(color)));
}

// Claims `count` consecutive ids that none of these ranks has used, so that two ranks which share
// two communicators can tell them apart. Other threads may split other communicators at the same
// time, in a different order on each rank. If a claim fails on any rank, all ranks claim again,
// further away each time.
Result<uint32_t> Splitter::claim_ids(uint32_t count) {
    int64_t first_free = 0;
    for (const Wish& wish : wishes_) first_free = std::max(first_free, wish.first_free_id);
    for (uint32_t attempt = 0; attempt < most_claims; ++attempt) {
        const auto first =
            static_cast<uint32_t>(first_free) + attempt * (core_.group.id() % claims_apart);
        TUTTI_ASSIGN(const bool all, issuer_.all_agree(core_.endpoint->claim_ids(first, count)));
        if (all) return first;
        Call most;
        most.count = 1;
        most.dtype = Dtype::int64;
        most.op = Op::max;
        const int64_t mine = core_.endpoint->first_free_id();
        TUTTI_TRY(issuer_.run_own(most, &mine, &first_free));
    }
    return fail(Code::system,
                "could not agree on a number for the new communicator in {} attempts, because "
                "other threads split communicators at the same time",
                most_claims)
        .advice("split communicators from one thread at a time");
}

std::vector<Rank> Splitter::members_of(int64_t color) const {
    std::vector<Rank> members;
    for (Rank r = 0; r < core_.size(); ++r)
        if (wish_of(r).color == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(),
                     [&](Rank a, Rank b) { return wish_of(a).key < wish_of(b).key; });
    return members;
}

// Called by every rank, also one that joins no part. nullptr: on at least one rank Offload does not
// split its resources.
std::unique_ptr<OffloadShare> Splitter::split_offload(int64_t color,
                                                      const std::vector<Rank>& members) {
    const bool all = std::all_of(wishes_.begin(), wishes_.end(),
                                 [](const Wish& wish) { return wish.splits_offload; });
    if (!all) return nullptr;
    const auto own = std::find(members.begin(), members.end(), core_.rank());
    // The accelerator's colours have 32 bits.
    return core_.offload->split({.color = color < 0 ? -1 : static_cast<int32_t>(index_of(color)),
                                 .rank = static_cast<Rank>(own - members.begin()),
                                 .size = static_cast<Rank>(members.size())});
}

Result<std::shared_ptr<Communicator>> Splitter::by(std::string_view name, int64_t color, int key) {
    TUTTI_TRY(core_.may_call());
    // The barrier fails unless every rank makes the same split.
    TUTTI_TRY(issuer_.begin(name));
    TUTTI_TRY(exchange_wishes(color, key));
    TUTTI_ASSIGN(const uint32_t first_id, claim_ids(index_of(-1)));
    const std::vector<Rank> members = members_of(color);
    std::unique_ptr<OffloadShare> share = split_offload(color, members);
    if (color < 0) return std::shared_ptr<Communicator>();
    std::shared_ptr<Communicator> part;
    auto complete = catching([&]() -> Result<> {
        part = Communicator::make_part(core_, members, first_id + index_of(color));
        TUTTI_TRY(assemble(*part));
        return share ? part->offload_->adopt(std::move(share)) : Result<>{};
    });
    if (complete) return part;
    return tl::unexpected(part_failed(part.get(), std::move(complete).error()));
}

// The part's first operation agrees whether every rank could join the intrinsics; when it ends,
// every rank is in the part. If a rank is lost or gives up meanwhile, the part ends and the waits
// are cancelled, even if only the whole communicator learns of it.
Result<> Splitter::assemble(Communicator& part) {
    if (part.size() == 1) return {};
    Core& core = part.core_;
    const Tie tie(core_, core);
    const net::CancelWaitsWhen over([&] {
        return core_.failure_protocol.check_unreachable() ||
               core.failure_protocol.check_unreachable();
    });
    Endpoint::Intrinsics joined =
        core.join_intrinsics(Deadline::after_ms(core.config().timeout_ms));
    if (auto cause = core_.failure_protocol.fatal_error()) return tl::unexpected(cause->error);
    TUTTI_ASSIGN(const bool all, part.issuer_.all_agree(joined.group != nullptr));
    if (all) core.use_intrinsics(std::move(joined));
    return {};
}

// Other members may still wait for this rank, so raise the error in the part. If the whole
// communicator has failed, its error is the cause. If the part could not even be made, raise the
// error in the whole communicator.
Error Splitter::part_failed(Communicator* part, Error error) {
    if (part && error.rank < part->size())
        error.rank = core_.group.of_job(part->core_.group.in_job(error.rank));
    const Error cause =
        core_.failure_protocol.fatal_error().value_or(FailureProtocol::FatalError{error}).error;
    Error told = cause;
    if (!part) {
        told.rank = core_.rank();
        core_.failure_protocol.raise(told);
        return cause;
    }
    told.rank = part->rank();
    told.reporter = part->rank();
    told.message = fmt::format("could not join the new communicator: {}", cause.message);
    part->core_.failure_protocol.raise(told);
    return cause;
}

}  // namespace tutti
