#include "measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <new>
#include <thread>

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t alignment = 4096;
constexpr int min_auto_iterations = 5;
constexpr int max_auto_iterations = 200'000;

// Limits the time of a size, in multiples of the planned time: the number of iterations follows
// from the warm-up, and the machine may be busier later.
constexpr double most_times_planned = 5;

double us_between(Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double, std::micro>(b - a).count();
}

// Ends the sampling on all ranks alike when it has taken much longer than planned. The interval
// between two checks grows: a check is an allreduce, which must not disturb the samples.
class Budget {
public:
    Budget(tutti::Communicator& comm, const Options& options)
        : comm_(comm), limit_us_(most_times_planned * options.min_time_s * 1e6) {
        if (options.iters > 0) next_look_ = std::numeric_limits<std::size_t>::max();
    }
    /// Whether a check is due after this number of samples.
    bool due(std::size_t samples) {
        if (samples < next_look_) return false;
        next_look_ += std::max<std::size_t>(1, next_look_ / 4);
        return true;
    }
    /// The check. Collective: all ranks get the same answer.
    bool spent() {
        std::array<double, 1> elapsed_us{us_between(start_, Clock::now())};
        comm_.allreduce(elapsed_us, TUTTI_MAX);
        return elapsed_us[0] > limit_us_;
    }

private:
    tutti::Communicator& comm_;
    const double limit_us_;
    const Clock::time_point start_ = Clock::now();
    std::size_t next_look_ = min_auto_iterations;
};

// Equal on ranks that share one steady clock.
uint64_t clock_identity() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    return std::hash<std::string>{}(text);
}

}  // namespace

Measurement::Measurement(tutti::Communicator& comm, const Options& options, std::size_t max_bytes)
    : comm_(comm),
      options_(options),
      seat_{.rank = comm.rank(), .ranks = comm.size()},
      checker_(comm.size()) {
    const bool needs_in = options.out_of_place && !options.collective->always_in_place;
    for (int i = 0; i < options.streams; ++i) {
        out_.push_back(allocate(max_bytes));
        if (needs_in) in_.push_back(allocate(max_bytes));
    }
    if (!options.device) return;
    device_ = std::make_unique<Device>(comm.rank());
    bytes_ = max_bytes;
    for (std::size_t i = 0; i < out_.size(); ++i) device_out_.push_back(device_->allocate(bytes_));
    for (std::size_t i = 0; i < in_.size(); ++i) device_in_.push_back(device_->allocate(bytes_));
    upload(!needs_in);
    if (options.nccl) nccl_ = std::make_unique<Nccl>(comm);
}

Measurement::Memory Measurement::allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes / alignment + 1) * alignment;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, rounded);  // every page exists before the clock runs
    return Memory(memory);
}

std::vector<Buffers> Measurement::buffers(const Call& call, bool in_place) const {
    std::vector<Buffers> list;
    for (std::size_t i = 0; i < out_.size(); ++i)
        list.push_back(device_
                           ? place(call, seat_, (in_place ? device_out_ : device_in_)[i].get(),
                                   device_out_[i].get())
                           : place(call, seat_, (in_place ? out_ : in_)[i].get(), out_[i].get()));
    return list;
}

void Measurement::upload(bool in_place) const {
    for (std::size_t i = 0; device_ && i < out_.size(); ++i) {
        device_->write(device_out_[i], out_[i].get(), bytes_);
        if (!in_place) device_->write(device_in_[i], in_[i].get(), bytes_);
    }
}

void Measurement::download(bool in_place) const {
    for (std::size_t i = 0; device_ && i < out_.size(); ++i) {
        device_->read(out_[i].get(), device_out_[i], bytes_);
        if (!in_place) device_->read(in_[i].get(), device_in_[i], bytes_);
    }
}

Outcome Measurement::measure(const Call& call, bool in_place) {
    const auto operation = make_operation(comm_.get(), options_, call, buffers(call, in_place));
    Outcome outcome;
    if (options_.check) {
        std::array<uint64_t, 1> wrong{check_once(call, in_place, *operation)};
        comm_.allreduce(wrong);
        outcome.wrong = wrong[0];
    }
    const auto peer = nccl_ ? nccl_->make(call, buffers(call, in_place)) : nullptr;
    prepare_timing(call, in_place);
    const uint64_t wrong = outcome.wrong;
    outcome = time(call, *operation, peer.get());
    outcome.wrong = wrong;
    return outcome;
}

uint64_t Measurement::check_once(const Call& call, bool in_place, Operation& operation) {
    if (!call.collective->moves_data()) return barrier_failed(operation) ? 1 : 0;
    const Layout layout = layout_of(call, seat_, in_place);
    for (std::size_t i = 0; i < out_.size(); ++i) {
        if (!in_place) checker_.fill(in_[i].get(), layout.in, call);
        checker_.fill(out_[i].get(), layout.before, call);
    }
    upload(in_place);
    operation.run();
    if (device_) comm_.sync();
    download(in_place);
    uint64_t wrong = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) {
        wrong += checker_.count_wrong(out_[i].get(), layout.after, call);
        if (!in_place) wrong += checker_.count_wrong(in_[i].get(), layout.in, call);
    }
    return wrong;
}

bool Measurement::barrier_failed(Operation& operation) {
    // Each rank in turn enters the barrier late, and no rank may leave the barrier before the late
    // rank has entered it. Only ranks that share one clock can check that.
    bool failed = false;
    for (int late = 0; late < comm_.size(); ++late) {
        if (late == comm_.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        std::array<int64_t, 1> last_in{Clock::now().time_since_epoch().count()};
        operation.run();
        const int64_t out = Clock::now().time_since_epoch().count();
        comm_.allreduce(last_in, TUTTI_MAX);
        failed = failed || out < last_in[0];
    }
    const uint64_t identity = clock_identity();
    std::array<uint64_t, 2> identities{identity, ~identity};
    comm_.allreduce(identities, TUTTI_MAX);
    return failed && identities[0] == ~identities[1];
}

void Measurement::prepare_timing(const Call& call, bool in_place) {
    // Sums that are added to themselves again and again soon overflow; zeros stay zeros.
    if (!in_place || !call.collective->reduces()) return;
    for (const Memory& memory : out_) std::memset(memory.get(), 0, bytes_of(call, seat_.ranks));
    upload(true);
}

void Measurement::run_turns(Operation& operation, int turns) {
    for (int i = 0; i < turns; ++i) operation.run();
    // On a device, blocking calls only enqueue the operations. The batch ends when the device has
    // completed them.
    if (device_) comm_.sync();
    operation.finish();
    // If data flows one way (from a root, to a root, along a prefix), the ranks that only send wait
    // for no other rank. They would run ahead by their credits, and a receiver would find most of
    // its data already there: its samples would be twenty times too fast. So a barrier ends each
    // sample; its time counts, shared by the batch.
    if (options_.collective->one_way()) comm_.barrier();
}

double Measurement::time_one_us(Operation& operation) {
    const Clock::time_point start = Clock::now();
    run_turns(operation, 1);
    return us_between(start, Clock::now());
}

int Measurement::choose_iterations(Operation& operation) {
    std::vector<double> times{time_one_us(operation)};
    for (int i = 1; i < options_.warmup; ++i) times.push_back(time_one_us(operation));
    if (options_.iters > 0) return options_.iters;
    std::array<double, 1> time_us{summarize(times).median};
    comm_.allreduce(time_us, TUTTI_MAX);  // all ranks must choose the same number
    const double fit = options_.min_time_s * 1e6 / std::max(time_us[0], 0.01);
    return static_cast<int>(
        std::clamp(fit, double{min_auto_iterations}, double{max_auto_iterations}));
}

double Measurement::sample_us(Operation& operation, int batch, double operations) {
    const Clock::time_point start = Clock::now();
    run_turns(operation, batch);
    return us_between(start, Clock::now()) / operations;
}

Outcome Measurement::time(const Call& call, Operation& operation, Operation* peer) {
    const int iterations = choose_iterations(operation);
    const auto [batch, samples] = cut_into_batches(iterations, bytes_of(call, seat_.ranks));
    const double operations = double(batch) * options_.streams;
    std::vector<double> times_us, peer_us;
    for (int i = 0; peer && i < std::max(1, options_.warmup); ++i) run_turns(*peer, 1);
    comm_.barrier();
    Budget budget(comm_, options_);
    const auto wanted = static_cast<std::size_t>(samples);
    Outcome outcome;
    if (peer) {
        while (times_us.size() < wanted) {
            if (budget.due(times_us.size()) && budget.spent()) break;
            times_us.push_back(sample_us(operation, batch, operations));
            peer_us.push_back(sample_us(*peer, batch, operations));
        }
        outcome.peer = gather_beside(times_us, std::move(peer_us));
    } else {
        // One clock read serves as the end of a sample and the start of the next.
        Clock::time_point last = Clock::now();
        while (times_us.size() < wanted) {
            if (budget.due(times_us.size())) {
                if (budget.spent()) break;
                last = Clock::now();
            }
            run_turns(operation, batch);
            const Clock::time_point now = Clock::now();
            times_us.push_back(us_between(last, now) / operations);
            last = now;
        }
    }
    outcome.timing = gather(summarize(times_us), int64_t{batch} * std::ssize(times_us));
    return outcome;
}

Beside Measurement::gather_beside(std::vector<double> ours, std::vector<double> theirs) {
    std::vector<double> ratios, added;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        ratios.push_back(theirs[i] / ours[i]);
        added.push_back(ours[i] - theirs[i]);
    }
    std::array<double, 2> largest{summarize(std::move(theirs)).median,
                                  summarize(std::move(added)).median};
    std::array<double, 1> smallest{summarize(std::move(ratios)).median};
    comm_.allreduce(largest, TUTTI_MAX);
    comm_.allreduce(smallest, TUTTI_MIN);
    return {.median_us = largest[0], .ratio = smallest[0], .added_us = largest[1]};
}

Timing Measurement::gather(const Summary& mine, int64_t iterations) {
    std::array<double, 3> largest{mine.median, mine.p99, mine.mean};
    std::array<double, 2> smallest{mine.median, mine.min};
    std::array<double, 1> sum{mine.median};
    comm_.allreduce(largest, TUTTI_MAX);
    comm_.allreduce(smallest, TUTTI_MIN);
    comm_.allreduce(sum);
    return {.median_us = largest[0],
            .mean_us = largest[2],
            .p99_us = largest[1],
            .min_us = smallest[1],
            .fastest_us = smallest[0],
            .average_us = sum[0] / comm_.size(),
            .iterations = iterations};
}

}  // namespace bench
