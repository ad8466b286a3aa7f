#include "proof/expect.h"

#include <fmt/format.h>

#include "schedule/words.h"

namespace tutti {

using symbolic::Contributions;
using symbolic::Order;
using symbolic::Value;

Expectations::Expectations(const VerifyRequest& request, const Places& places, uint32_t chunks,
                           const symbolic::Values& values)
    : r_(request),
      places_(places),
      values_(values),
      prefixes_(request.collective == Collective::scan ||
                request.collective == Collective::exscan) {
    orders_.resize(static_cast<std::size_t>(r_.ranks) + 1);
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        orders_[static_cast<std::size_t>(rank) + 1] =
            orders_[static_cast<std::size_t>(rank)] + Order::of(rank);
    if (!traits_of(r_.collective).reduces) return;
    sums_.resize(chunks);
    for (uint32_t c = 0; c < chunks; ++c) {
        Contributions all;
        if (prefixes_) sums_[c].push_back(all);
        for (Rank rank = 0; rank < r_.ranks; ++rank) {
            all += Contributions::of(rank, c);
            if (prefixes_) sums_[c].push_back(all);
        }
        if (!prefixes_) sums_[c].push_back(all);
    }
}

Rank Expectations::contributors(Rank rank) const {
    if (r_.collective == Collective::scan) return rank + 1;
    return r_.collective == Collective::exscan ? rank : r_.ranks;
}

const Contributions& Expectations::sum(Rank count, uint32_t chunk) const {
    return sums_[chunk][prefixes_ ? static_cast<std::size_t>(count) : 0];
}

bool Expectations::in_rank_order(Rank rank, Value value) const {
    return values_.content(value).order == orders_[static_cast<std::size_t>(contributors(rank))];
}

// The likeliest mistake: one rank's contribution is missing or counted twice.
std::string Expectations::missing_or_twice(const Contributions& held, Rank count,
                                           uint32_t chunk) const {
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        Contributions more = held, full = sum(count, chunk);
        more += Contributions::of(rank, chunk);
        full += Contributions::of(rank, chunk);
        if (more == sum(count, chunk)) return fmt::format(": rank {}'s is missing", rank);
        if (held == full)
            return fmt::format(": rank {}'s is there {}", rank,
                               rank < count ? "twice" : "but not wanted");
    }
    return {};
}

std::string Expectations::fault(Rank rank, uint32_t chunk, Value value) const {
    if (!value.defined()) return "it is never written";
    if (r_.collective == Collective::barrier) {
        for (Rank other = 0; other < r_.ranks; ++other)
            if (!values_.knows(value, other))
                return fmt::format("leaves without having heard of rank {}", other);
        return {};
    }
    if (!traits_of(r_.collective).reduces) {
        const Rank owner = places_.source(chunk);
        if (value == Value::input(owner, chunk)) return {};
        return r_.collective == Collective::broadcast
                   ? "is not the root's"
                   : fmt::format("is not chunk {} of rank {}", chunk, owner);
    }
    if (value.form() != Form::final)
        return fmt::format("is {}, not final", form_name(value.form()));
    const Rank count = contributors(rank);
    const Contributions held = values_.content(value).from;
    if (held == sum(count, chunk)) return {};
    const std::string_view whose =
        prefixes_ ? "the contribution of each rank up to it" : "every rank's contribution";
    return fmt::format("does not hold {} exactly once{}", whose,
                       missing_or_twice(held, count, chunk));
}

}  // namespace tutti
