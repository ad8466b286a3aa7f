#include "measure.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "bench/median.h"

namespace tutti::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int fewest_rounds = 7, most_rounds = 21;
// These rounds always run, because a median needs them. After them, measuring ends when its time is
// over.
constexpr int rounds_in_any_case = 3;
constexpr int first_blocks = 4;
constexpr double first_block_us = 1000;
constexpr int64_t most_iterations = 20'000;
// An algorithm that takes this many times the best is not measured again: no user would choose it.
constexpr double hopeless = 4;

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Some ranks wait for no other rank, so a block must end with a barrier.
bool one_way(Collective collective) {
    return traits_of(collective).rooted || collective == Collective::scan ||
           collective == Collective::exscan;
}

Call barrier() {
    Call call;
    call.collective = Collective::barrier;
    return call;
}

// The sizes from begin to end, always with the last one.
std::vector<std::size_t> sizes_of(const Options& options) {
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = options.begin_bytes; bytes < options.end_bytes;
         bytes *= options.factor) {
        sizes.push_back(bytes);
        if (bytes > options.end_bytes / options.factor) break;  // the product might wrap
    }
    sizes.push_back(options.end_bytes);
    return sizes;
}

}  // namespace

const Time& Cell::best() const {
    return *std::min_element(times.begin(), times.end(),
                             [](const Time& a, const Time& b) { return a.ratio < b.ratio; });
}

const Time* Cell::of(const std::string& algorithm) const {
    for (const Time& time : times)
        if (time.algorithm == algorithm) return &time;
    return nullptr;
}

std::vector<Call> calls_of(Collective collective, const Options& options, Rank ranks) {
    if (collective == Collective::barrier) return {barrier()};
    const std::size_t blocks =
        traits_of(collective).cut == Cut::whole ? 1 : static_cast<std::size_t>(ranks);
    std::vector<Call> calls;
    for (const std::size_t bytes : sizes_of(options)) {
        Call call;
        call.collective = collective;
        call.dtype = options.dtype;
        call.count = std::max<std::size_t>(1, bytes / blocks / dtype_bytes(options.dtype));
        if (calls.empty() || calls.back().count != call.count) calls.push_back(call);
    }
    return calls;
}

Bench::Bench(Communicator& comm, const Options& options)
    : comm_(comm),
      in_(std::max(options.end_bytes,
                   static_cast<std::size_t>(comm.size()) * dtype_bytes(options.dtype))),
      out_(in_.size()) {}

Result<std::vector<Bench::Runner>> Bench::make_runners(const Call& call) {
    std::vector<Runner> runners;
    for (const Choice& choice : comm_.planner().candidates(call)) {
        Call named = call;
        named.algorithm = choice.name;
        Runner runner;
        runner.time = {.algorithm = std::string(choice.name),
                       .terms = choice.terms,
                       .inner_us = choice.inner_us};
        TUTTI_ASSIGN(runner.plan, comm_.calls().make_plan(named, 0));
        runners.push_back(std::move(runner));
    }
    return runners;
}

Result<double> Bench::block_us(Runner& runner, const Call& call) {
    const bool in_place = traits_of(call.collective).cut == Cut::whole;
    TUTTI_TRY(comm_.calls().run(barrier(), nullptr, nullptr));
    const auto start = Clock::now();
    for (int64_t i = 0; i < runner.iterations; ++i)
        TUTTI_TRY(
            comm_.calls().run(*runner.plan, in_place ? out_.data() : in_.data(), out_.data()));
    if (one_way(call.collective)) TUTTI_TRY(comm_.calls().run(barrier(), nullptr, nullptr));
    return us_since(start) / static_cast<double>(runner.iterations);
}

Result<> Bench::largest(std::vector<double>& values) {
    Call call;
    call.count = values.size();
    call.dtype = Dtype::float64;
    call.op = Op::max;
    return comm_.calls().run(call, values.data(), values.data());
}

// Estimates the time of one run, with the same result on all ranks. Takes the fastest of a few
// blocks, because a single slow block must not exclude an algorithm.
Result<double> Bench::first_us(Runner& runner, const Call& call) {
    TUTTI_TRY(block_us(runner, call));  // connects, and touches the memory
    double best = std::numeric_limits<double>::max();
    for (int attempt = 0; attempt < first_blocks; ++attempt) {
        TUTTI_ASSIGN(const double us, block_us(runner, call));
        std::vector<double> slowest{us};
        TUTTI_TRY(largest(slowest));
        best = std::min(best, slowest[0]);
        if (best * static_cast<double>(runner.iterations) < first_block_us) runner.iterations *= 8;
    }
    return best;
}

// Sets each algorithm's iterations per round and returns the rounds; the same on all ranks.
Result<int> Bench::agree_on_rounds(std::vector<Runner>& runners, const Call& call, double seconds) {
    std::vector<double> once_us;
    for (Runner& runner : runners) {
        TUTTI_ASSIGN(const double us, first_us(runner, call));
        once_us.push_back(us);
    }
    const double best_us = *std::min_element(once_us.begin(), once_us.end());
    double round_us = 0;  // each candidate runs once
    for (const double us : once_us)
        if (us <= hopeless * best_us) round_us += us;
    const int rounds =
        std::clamp(static_cast<int>(seconds * 1e6 / round_us), fewest_rounds, most_rounds);
    const double slice_us = seconds * 1e6 / rounds / static_cast<double>(runners.size());
    for (std::size_t i = 0; i < runners.size(); ++i) {
        const double fit = slice_us / std::max(once_us[i], 0.01);
        runners[i].iterations = static_cast<int64_t>(std::clamp(fit, 1.0, double{most_iterations}));
        if (once_us[i] <= hopeless * best_us) continue;
        runners[i].iterations = 0;
        runners[i].rounds_us = {once_us[i]};
    }
    return rounds;
}

Result<Cell> Bench::summarise(std::vector<Runner> runners, Cell cell) {
    std::vector<double> chosen_us;
    for (Runner& runner : runners) {
        TUTTI_TRY(largest(runner.rounds_us));
        if (runner.time.algorithm == cell.chosen) chosen_us = runner.rounds_us;
    }
    const double chosen = bench::median(chosen_us);
    for (Runner& runner : runners) {
        runner.time.us = bench::median(runner.rounds_us);
        runner.time.ratio = runner.time.us / chosen;
        if (runner.rounds_us.size() == chosen_us.size()) {
            for (std::size_t r = 0; r < chosen_us.size(); ++r) runner.rounds_us[r] /= chosen_us[r];
            runner.time.ratio = bench::median(std::move(runner.rounds_us));
        }
        cell.times.push_back(std::move(runner.time));
    }
    return cell;
}

Result<Cell> Bench::measure(const Call& call, double seconds) {
    Cell cell;
    cell.collective = call.collective;
    cell.bytes = comm_.planner().bytes_of(call);
    TUTTI_ASSIGN(const Choice choice, comm_.planner().choose(call));
    cell.chosen = choice.name;
    const auto start = Clock::now();
    TUTTI_ASSIGN(std::vector<Runner> runners, make_runners(call));
    TUTTI_ASSIGN(const int rounds, agree_on_rounds(runners, call, seconds));
    for (int round = 0; round < rounds; ++round) {
        if (round >= rounds_in_any_case) {
            // The first runs' time set the number of rounds, but the machine may be busier now.
            std::vector<double> elapsed_us{us_since(start)};
            TUTTI_TRY(largest(elapsed_us));
            if (elapsed_us[0] > seconds * 1e6) break;
        }
        for (std::size_t i = 0; i < runners.size(); ++i) {
            // Each round starts with another algorithm, so that none is always first.
            Runner& runner = runners[(i + static_cast<std::size_t>(round)) % runners.size()];
            if (runner.iterations == 0) continue;
            TUTTI_ASSIGN(const double us, block_us(runner, call));
            runner.rounds_us.push_back(us);
        }
    }
    return summarise(std::move(runners), std::move(cell));
}

}  // namespace tutti::tune
