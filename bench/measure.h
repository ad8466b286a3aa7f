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
    double fastest_us = 0;   // the ranks' medians: the smallest,
    double average_us = 0;   // their average
    int64_t iterations = 0;  // on each rank
};

/// Beside a peer, sample by sample in turn. Of the rank where ours does worst.
struct Beside {
    double median_us = 0;  // the peer's, on its slowest rank
    double ratio = 0;      // its time ÷ ours: above 1 ours is faster
    double added_us = 0;   // ours − its
};

struct Outcome {
    Timing timing;
    std::optional<Beside> peer;
    uint64_t wrong = 0;  // elements, over all ranks; 0 without --check
};

/// Memory for the largest size of a sweep, made once.
class Measurement {
public:
    Measurement(tutti::Communicator& comm, const Options& options, std::size_t max_bytes);

    /// Throws tutti::Error; TUTTI_ERR_UNSUPPORTED before any data moved.
    Outcome measure(const Call& call, bool in_place);

private:
    struct FreeAligned {
        void operator()(std::byte* p) const { std::free(p); }
    };
    using Memory = std::unique_ptr<std::byte[], FreeAligned>;
    static Memory allocate(std::size_t bytes);
    /// The bytes from which operations start and with which they end, where they are a device's.
    void upload(bool in_place) const;
    void download(bool in_place) const;

    std::vector<Buffers> buffers(const Call& call, bool in_place) const;
    uint64_t check_once(const Call& call, bool in_place, Operation& operation);
    bool barrier_failed(Operation& operation);
    void prepare_timing(const Call& call, bool in_place);
    void run_turns(Operation& operation, int turns);
    double time_one_us(Operation& operation);
    int choose_iterations(Operation& operation);
    /// One sample: so many turns.
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
