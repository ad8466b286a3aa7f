// The learning rate from step to step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace imagenet_like {

struct Schedule {
    double rate = 0.2;       // for 64 images a step
    std::size_t batch = 64;  // of all replicas
    double warmup_epochs = 1;
    double epochs = 8;

    /// Linear in the batch: Goyal et al., arXiv 1706.02677, section 2.1.
    double peak() const { return rate * static_cast<double>(batch) / 64; }
    /// epoch counts from 0; its fraction is the part of the epoch that is done. The rate rises in
    /// equal steps from a tenth of the peak (section 2.2 there), then falls along a cosine
    /// (Loshchilov and Hutter, arXiv 1608.03983).
    double at(double epoch) const {
        if (epoch < warmup_epochs) return peak() * (0.1 + 0.9 * epoch / warmup_epochs);
        const double done = (epoch - warmup_epochs) / std::max(epochs - warmup_epochs, 1e-9);
        return peak() * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
    }
};

}  // namespace imagenet_like
