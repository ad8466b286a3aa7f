// All algorithms of one call, measured in turns.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "options.h"

namespace tutti::tune {

/// One algorithm in one cell.
struct Time {
    std::string algorithm;
    Terms terms{};
    double inner_us = 0;  // the predicted time outside the terms
    double us = 0;        // median over the rounds, of the slowest rank
    double ratio = 1;     // to tutti's choice: median over the rounds, each with its own ratio
};

/// One collective at one size.
struct Cell {
    Collective collective = Collective::allreduce;
    std::size_t bytes = 0;  // of the larger buffer, as the call has them
    std::string chosen;     // by tutti
    std::vector<Time> times;

    /// The algorithm with the smallest ratio. A ratio does not depend on phases in which the whole
    /// machine is slow.
    const Time& best() const;
    const Time* of(const std::string& algorithm) const;
};

/// The calls for the sizes from begin to end, always with the last one. Each size is rounded down
/// to the same number of elements for every rank, at least one. Equal calls are merged; a barrier
/// has no size.
std::vector<Call> calls_of(Collective collective, const Options& options, Rank ranks);

class Bench {
public:
    Bench(Communicator& comm, const Options& options);
    /// Takes this number of seconds, or longer if the fewest rounds need more. Collective.
    Result<Cell> measure(const Call& call, double seconds);

private:
    struct Runner {
        Time time;
        std::unique_ptr<Plan> plan;
        int64_t iterations = 1;
        std::vector<double> rounds_us;
    };
    Result<std::vector<Runner>> make_runners(const Call& call);
    Result<double> block_us(Runner& runner, const Call& call);
    Result<double> first_us(Runner& runner, const Call& call);
    Result<int> agree_on_rounds(std::vector<Runner>& runners, const Call& call, double seconds);
    Result<Cell> summarise(std::vector<Runner> runners, Cell cell);
    Result<> largest(std::vector<double>& values);

    Communicator& comm_;
    std::vector<std::byte> in_, out_;
};

}  // namespace tutti::tune
