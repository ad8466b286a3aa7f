// The operations between failures, and the checks of their results.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/tutti.h"

namespace recovery_test {

using Random = std::mt19937_64;

/// A communicator, and the names of its ranks: their numbers in the job.
struct Ranks {
    tutti_comm* comm = nullptr;
    std::vector<int> names;
    int rank = 0;

    int size() const { return static_cast<int>(names.size()); }
    int name() const { return names[static_cast<std::size_t>(rank)]; }
    /// The name of the rank at fault in the communicator's last failure, -1 if none is known.
    int blamed() const {
        const int at_fault = tutti_last_error_rank();
        return at_fault < 0 || at_fault >= size() ? -1 : names[static_cast<std::size_t>(at_fault)];
    }
};

/// A call's status, and the name of the rank at fault if it failed.
struct Outcome {
    Outcome(const Ranks& ranks, tutti_status call)
        : status(call), blamed(call == TUTTI_OK ? -1 : ranks.blamed()) {}

    tutti_status status;
    int blamed;
    bool may_blame_the_living = false;
};

/// A result that no failure excuses.
class WrongResult : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// All ranks draw the same numbers. Returns the outcome of a call that failed, if one did; throws
/// WrongResult.
struct Operation {
    const char* name;
    Outcome (*run)(const Ranks& ranks, Random& random);
};
std::span<const Operation> operations();

/// The ranks' names over the communicator itself, and a sum.
Outcome check_members(const Ranks& ranks);

}  // namespace recovery_test
