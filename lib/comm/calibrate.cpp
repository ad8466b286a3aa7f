#include "comm/calibrate.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "select/fit.h"

namespace tutti {
namespace {

constexpr std::size_t kib = 1024;
// The weight of each built-in constant in the fit, as a number of measurements.
constexpr double trust = 0.1;
constexpr int64_t most_iterations = 10'000;

// Together the probes measure latency, overhead, the cost of a byte moved and of a byte reduced,
// and the intrinsic if there is one.
struct Probe {
    Collective collective;
    std::size_t bytes;
    std::string_view algorithm;
};
constexpr Probe probes[] = {
    {Collective::allreduce, 8, "recursive_doubling"},
    {Collective::allreduce, 8, "flat"},
    {Collective::allreduce, 32 * kib, "flat"},
    {Collective::allreduce, 64 * kib, "recursive_doubling"},
    {Collective::allgather, 64 * kib, "direct"},
    {Collective::allgather, 1024 * kib, "ring"},
    {Collective::allreduce, 1024 * kib, "ring"},
};

class Calibration {
public:
    Calibration(Communicator& comm, int64_t budget_ms)
        : comm_(comm),
          slice_us_(static_cast<double>(budget_ms) * 1000 / std::size(probes)),
          in_(1024 * kib + sizeof(double) * static_cast<std::size_t>(comm.size())),
          out_(in_.size()) {}

    Result<> run() {
        std::vector<Sample> samples;
        for (const Probe& probe : probes) {
            Call call;
            call.collective = probe.collective;
            call.dtype = Dtype::float32;
            const auto ranks = static_cast<std::size_t>(comm_.size());
            const std::size_t blocks = traits_of(probe.collective).cut == Cut::whole ? 1 : ranks;
            call.count = std::max<std::size_t>(1, probe.bytes / blocks / sizeof(float));
            call.algorithm = probe.algorithm;
            const auto choice = comm_.planner().choose(call);
            if (!choice) continue;  // the same on all ranks: there is no such algorithm here
            TUTTI_ASSIGN(const double us, measure(call));
            samples.push_back({choice->terms, us});
        }
        return spread(fit(samples, comm_.planner().selection_input().constants, trust));
    }

private:
    // The slowest rank's time in µs per operation, because all ranks must fit the same samples.
    Result<double> time(const Call& call, int64_t iterations) {
        const int64_t start = now_ns();
        for (int64_t i = 0; i < iterations; ++i)
            TUTTI_TRY(comm_.calls().run_own(call, in_.data(), out_.data()));
        double us = static_cast<double>(now_ns() - start) / 1000 / static_cast<double>(iterations);
        Call all;
        all.count = 1;
        all.dtype = Dtype::float64;
        all.op = Op::max;
        all.algorithm = "recursive_doubling";
        TUTTI_TRY(comm_.calls().run_own(all, &us, &us));
        return us;
    }

    // The first run opens connections and touches memory; the second tells how many iterations fit
    // the budget.
    Result<double> measure(const Call& call) {
        TUTTI_TRY(time(call, 1));
        TUTTI_ASSIGN(const double once_us, time(call, 1));
        const double fit = slice_us_ / std::max(once_us, 0.1);
        return time(call, static_cast<int64_t>(std::clamp(fit, 1.0, double{most_iterations})));
    }

    Result<> spread(Constants constants) {
        Call call;
        call.collective = Collective::broadcast;
        call.count = constants.size();
        call.dtype = Dtype::float64;
        call.algorithm = "binomial";
        TUTTI_TRY(comm_.calls().run_own(call, constants.data(), constants.data()));
        comm_.planner().use(constants);
        return {};
    }

    Communicator& comm_;
    const double slice_us_;
    std::vector<std::byte> in_, out_;
};

}  // namespace

Result<> calibrate(Communicator& comm, int64_t budget_ms) {
    const SelectionInput& input = comm.planner().selection_input();
    if (comm.size() == 1 || (input.tuning && input.tuning->constants_of(input.wire))) return {};
    return Calibration(comm, budget_ms).run();
}

}  // namespace tutti
