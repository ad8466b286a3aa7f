// Medians and percentiles, and bandwidths.
#pragma once

#include <cstddef>
#include <vector>

namespace bench {

struct Summary {
    double mean = 0;
    double median = 0;
    double p99 = 0;
    double min = 0;
};
/// samples must not be empty. p99 is the nearest rank: the smallest value that 99 % do not exceed.
Summary summarize(std::vector<double> samples);

/// The iterations in each sample. Below 64 KiB a clock read would show in the time, so up to 100
/// iterations share one, as long as that leaves 20 samples.
struct Batches {
    int batch = 1;
    int samples = 1;
};
Batches cut_into_batches(int iterations, std::size_t bytes);

/// 10^9 bytes per second.
double to_gbs(std::size_t bytes, double time_us);

}  // namespace bench
