// The planner's side of a flat exchange: the group, which binds operations, and the provider, which
// makes groups.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "transport/flat/flat_operation.h"

namespace tutti {

/// A group on this rank. Its operations share and keep a Member, which has `rank`, `size`,
/// `streams`, `limits`, and prepare(bytes): it makes room for a contribution of that size.
template <FlatBoard Board>
class FlatGroup final : public IntrinsicGroup {
public:
    using Member = typename Board::Member;
    explicit FlatGroup(std::shared_ptr<Member> member) : member_(std::move(member)) {}

    bool serves(Collective collective, std::size_t bytes) const override {
        return bytes <= limits.most_bytes && flat_serves(limits, collective);
    }
    std::size_t most_bytes() const override { return limits.most_bytes; }
    bool sends() const override { return limits.sends; }

    Result<std::unique_ptr<Operation>> bind(const IntrinsicShape& shape) override {
        TUTTI_ASSIGN(const std::size_t bytes, flat_contribution_bytes(*this, shape));
        if (shape.stream >= member_->streams.size())
            return fail(Code::invalid, "flat: ring {} is out of range", shape.stream)
                .advice("give a ring from 0 to {}", member_->streams.size() - 1);
        if (shape.root < 0 || shape.root >= member_->size)
            return fail(Code::invalid, "flat: root {} is out of range", shape.root)
                .advice("give a rank from 0 to {}", member_->size - 1);
        const bool is_broadcast = shape.collective == Collective::broadcast;
        if (!is_broadcast || shape.root == member_->rank)
            TUTTI_TRY(member_->prepare(shape.stream, bytes));
        if constexpr (limits.broadcasts)
            if (is_broadcast) return std::make_unique<FlatBroadcast<Board>>(member_, shape, bytes);
        return std::make_unique<FlatAllreduce<Board>>(member_, shape, bytes);
    }

    // A slot's turn includes the epoch, so no new operation reads an old epoch's slot as its own.
    void reset() override {
        for (FlatStream& stream : member_->streams) stream = {};
    }

private:
    static constexpr const FlatLimits& limits = Member::limits;
    const std::shared_ptr<Member> member_;
};

/// A transport's flat exchange.
class FlatProvider final : public IntrinsicProvider {
public:
    using Join =
        std::function<Result<std::unique_ptr<IntrinsicGroup>>(const GroupRequest&, Deadline)>;
    /// join: makes this rank a member of a group that is within the limits.
    FlatProvider(const FlatLimits& limits, Join join) : limits_(limits), join_(std::move(join)) {}

    std::string_view name() const override { return flat_name; }
    std::string_view reference(Collective collective) const override {
        return flat_serves(limits_, collective) ? flat_reference(collective) : "";
    }
    Rank most_ranks() const override { return limits_.most_ranks; }
    Result<std::unique_ptr<IntrinsicGroup>> join(const GroupRequest& group,
                                                 Deadline deadline) override {
        TUTTI_TRY(check_flat_group(group, limits_));
        return join_(group, deadline);
    }

private:
    const FlatLimits limits_;
    const Join join_;
};

}  // namespace tutti
