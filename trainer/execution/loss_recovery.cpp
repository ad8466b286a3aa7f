#include "trainer/execution/loss_recovery.h"

#include <algorithm>
#include <array>

namespace tutti::trainer {
namespace {

// A failure that repeats itself although no rank is lost would not end.
constexpr int most_attempts = 8;

}  // namespace

Result<LossRecovery> LossRecovery::make(const tutti_trainer_recovery& options,
                                        std::vector<const BufferGroup*> copied,
                                        std::vector<const BufferGroup*> kept, Replicas& replicas,
                                        StateBroadcast& broadcast) {
    TRAINER_ASSIGN(StateCopy begin, StateCopy::make(std::move(copied), replicas.devices));
    return LossRecovery(options, std::move(begin), std::move(kept), replicas, broadcast);
}

Result<std::vector<RankPosition>> LossRecovery::exchange(const RankPosition& own) const {
    constexpr std::size_t words = 3;
    const Comm& comm = replicas_->comm;
    const int64_t flags = (own.between_steps ? 1 : 0) | (own.has_state ? 2 : 0);
    const std::array<int64_t, words> mine = {own.finished, own.total, flags};
    std::vector<int64_t> all(mine.begin(), mine.end());
    all.resize(words * static_cast<std::size_t>(comm.size()));
    if (comm.size() > 1)
        TRAINER_TRY(
            run_within("recovery", "steps of the ranks left", [&](auto* opts, auto* request) {
                return tutti_iallgather(comm.get(), mine.data(), all.data(), words, TUTTI_INT64,
                                        opts, request);
            }));
    std::vector<RankPosition> positions;
    for (std::size_t at = 0; at < all.size(); at += words)
        positions.push_back({all[at], all[at + 1], (all[at + 2] & 1) != 0, (all[at + 2] & 2) != 0});
    return positions;
}

Result<> LossRecovery::broadcast(int root) {
    if (replicas_->count() == 1) return {};
    // A failed broadcast leaves its outputs undefined.
    TRAINER_ASSIGN(StateCopy before, StateCopy::make(kept_, replicas_->devices));
    TRAINER_TRY(before.take());
    Result<> done = broadcast_->run(root);
    if (!done) TRAINER_TRY(before.restore());
    return done;
}

// A step needs the gradients of all ranks. So the numbers of finished steps differ by at most one.
Result<AfterLoss> LossRecovery::level(const RankPosition& own) {
    TRAINER_ASSIGN(const std::vector<RankPosition> all, exchange(own));
    if (std::ranges::none_of(all, [](auto& p) { return p.has_state; }))
        return fail(TUTTI_ERR_ABORTED,
                    "all ranks that had the training's state were lost before this one had got it")
            .advice("start the training again from a checkpoint")
            .agreed();
    const auto by_steps = [](const RankPosition& a, const RankPosition& b) {
        return a.finished < b.finished;
    };
    const auto ahead = std::ranges::max_element(all, by_steps);
    const auto behind = std::ranges::min_element(all, by_steps);
    AfterLoss after;
    after.between_steps = std::ranges::any_of(all, [](auto& p) { return p.between_steps; });
    if (ahead->finished == behind->finished) return after;
    const auto rank = static_cast<int>(ahead - all.begin());
    if (ahead->finished > behind->finished + 1)
        return fail_rank(TUTTI_ERR_INVALID, static_cast<int>(behind - all.begin()),
                         "rank {} has finished {} steps, but rank {} only {}", rank,
                         ahead->finished, behind - all.begin(), behind->finished)
            .advice("call tutti_trainer_step as often on every rank");
    TRAINER_TRY(broadcast(rank * replicas_->local()));
    after.has_finished = own.finished < ahead->finished;
    after.total = ahead->total;
    return after;
}

Result<AfterLoss> LossRecovery::regroup(const RankPosition& own) {
    Comm& comm = replicas_->comm;
    const int ranks_before = comm.size();
    for (int attempt = 0;;) {
        const int size = comm.size();
        TRAINER_TRY(comm.shrink());
        attempt = comm.size() == size ? attempt + 1 : 0;
        Result<AfterLoss> after = level(own);
        if (!after && is_loss(after.error()) && attempt < most_attempts) continue;
        TRAINER_TRY(after);
        ++count_;
        after->ranks_before = ranks_before;
        return after;
    }
}

Result<bool> LossRecovery::resize(int64_t* samples) const {
    if (!options_.resize) return false;
    const Comm& comm = replicas_->comm;
    const tutti_status status = options_.resize(options_.user, comm.rank(), comm.size(), samples);
    if (status != TUTTI_OK)
        return fail(status, "recovery.resize failed on rank {} of {}: {}", comm.rank(), comm.size(),
                    tutti_status_string(status))
            .advice("correct the function");
    return true;
}

}  // namespace tutti::trainer
