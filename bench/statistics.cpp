#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bench {
namespace {

constexpr std::size_t batching_below_bytes = 64 * 1024;
constexpr int max_batch = 100;
constexpr int wanted_samples = 20;

}  // namespace

Summary summarize(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const std::size_t n = samples.size();
    const auto rank = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(n)));
    return {.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(n),
            .median = (samples[(n - 1) / 2] + samples[n / 2]) / 2,
            .p99 = samples[rank - 1],
            .min = samples.front()};
}

Batches cut_into_batches(int iterations, std::size_t bytes) {
    const int batch =
        bytes < batching_below_bytes ? std::clamp(iterations / wanted_samples, 1, max_batch) : 1;
    return {.batch = batch, .samples = std::max(1, iterations / batch)};
}

double to_gbs(std::size_t bytes, double time_us) {
    return time_us > 0 ? static_cast<double>(bytes) / (time_us * 1e3) : 0;
}

}  // namespace bench
