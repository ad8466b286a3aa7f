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
};

/// A result that no failure excuses.
class WrongResult : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// All ranks draw the same numbers. Returns the status of the first call that failed; throws
/// WrongResult.
struct Operation {
    const char* name;
    tutti_status (*run)(const Ranks& ranks, Random& random);
};
std::span<const Operation> operations();

/// The ranks' names over the communicator itself, and a sum.
tutti_status check_members(const Ranks& ranks);

}  // namespace recovery_test
