// Runs one operation: checks what it computes, then times it, and gathers both from all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "check.h"
#include "device.h"
#include "nccl.h"
#include "operation.h"
#include "options.h"
#include "statistics.h"

namespace bench {

/// The same on every rank. Times are for one operation.
struct Timing {
    double median_us = 0;    // of the slowest rank: this is the operation's time
    double mean_us = 0;      // of the slowest rank: far above the median when time comes in bursts
    double p99_us = 0;       // of the slowest rank
    double min_us = 0;       // of the fastest rank
    double fastest_us = 0;   // the smallest of the ranks' medians
    double average_us = 0;   // the average of the ranks' medians
    int64_t iterations = 0;  // on each rank
};

/// The comparison with a peer library, whose samples alternate with tutti's. Each value is that of
/// the rank on which tutti does worst.
struct Beside {
    double median_us = 0;  // the peer's time, on its slowest rank
    double ratio = 0;      // the peer's time ÷ tutti's time: above 1, tutti is faster
    double added_us = 0;   // tutti's time − the peer's time
};

struct Outcome {
    Timing timing;
    std::optional<Beside> peer;
    uint64_t wrong = 0;  // elements, over all ranks; 0 without --check
};

/// Measures calls. Its constructor allocates memory for the largest size of a sweep, once.
class Measurement {
public:
    Measurement(tutti::Communicator& comm, const Options& options, std::size_t max_bytes);

    /// Throws tutti::Error. If its status is TUTTI_ERR_UNSUPPORTED, no data has moved.
    Outcome measure(const Call& call, bool in_place);

private:
    struct FreeAligned {
        void operator()(std::byte* p) const { std::free(p); }
    };
    using Memory = std::unique_ptr<std::byte[], FreeAligned>;
    static Memory allocate(std::size_t bytes);
    /// Copy the inputs to the device before an operation, and the results to the host after it.
    /// Without --memory device they do nothing.
    void upload(bool in_place) const;
    void download(bool in_place) const;

    std::vector<Buffers> buffers(const Call& call, bool in_place) const;
    uint64_t check_once(const Call& call, bool in_place, Operation& operation);
    bool barrier_failed(Operation& operation);
    void prepare_timing(const Call& call, bool in_place);
    void run_turns(Operation& operation, int turns);
    double time_one_us(Operation& operation);
    int choose_iterations(Operation& operation);
    /// Takes one sample, which runs the operation `batch` times. Returns the time divided by
    /// `operations`.
    double sample_us(Operation& operation, int batch, double operations);
    Outcome time(const Call& call, Operation& operation, Operation* peer);
    Beside gather_beside(std::vector<double> ours, std::vector<double> theirs);
    Timing gather(const Summary& mine, int64_t iterations);

    tutti::Communicator& comm_;
    const Options& options_;
    Seat seat_;
    Checker checker_;
    std::vector<Memory> in_;
    std::vector<Memory> out_;
    std::size_t bytes_ = 0;
    std::unique_ptr<Device> device_;  // with --memory device; its buffers mirror those above
    std::vector<DeviceMemory> device_in_, device_out_;
    std::unique_ptr<Nccl> nccl_;  // with --peer nccl
};

}  // namespace bench
