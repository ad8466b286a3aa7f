// The values that a correct collective leaves in every chunk of every output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proof/values.h"
#include "proof/verify.h"
#include "schedule/places.h"

namespace tutti {

class Expectations {
public:
    Expectations(const VerifyRequest& request, const Places& places, uint32_t chunks,
                 const symbolic::Values& values);

    /// Empty if the chunk of the rank's output is correct, else a description of the error.
    std::string fault(Rank rank, uint32_t chunk, symbolic::Value value) const;

    /// Whether all contributions of a correct value were combined in the order of the ranks.
    bool in_rank_order(Rank rank, symbolic::Value value) const;

private:
    /// The number of ranks whose contributions the rank's result has: ranks 0 … count - 1.
    Rank contributors(Rank rank) const;
    const symbolic::Contributions& sum(Rank count, uint32_t chunk) const;
    std::string missing_or_twice(const symbolic::Contributions& held, Rank count,
                                 uint32_t chunk) const;

    const VerifyRequest& r_;
    const Places& places_;
    const symbolic::Values& values_;
    bool prefixes_;  // results differ from rank to rank: keeps sums of every length
    std::vector<std::vector<symbolic::Contributions>> sums_;  // [chunk][count], or [chunk][0]
    std::vector<symbolic::Order> orders_;                     // of ranks 0 … i - 1
};

}  // namespace tutti
