// 64 pixels → 32 hidden units (tanh) → 10 classes (softmax), trained on cross-entropy, in float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataset.h"

namespace digits {

inline constexpr std::size_t hidden = 32;
inline constexpr std::size_t parameter_count = hidden * (pixels + 1) + classes * (hidden + 1);

/// Sums over images; those of the ranks add up to those of a batch.
struct Score {
    double loss = 0;
    double correct = 0;
};

/// All weights and biases in one vector, so that one allreduce or broadcast moves them.
class Model {
public:
    /// Random weights, small enough for tanh.
    explicit Model(uint64_t seed);

    std::span<double> parameters() { return parameters_; }
    std::span<const double> parameters() const { return parameters_; }

    /// Adds the images' gradients to gradient (parameter_count long).
    Score add_gradient(std::span<const Image* const> images, std::span<double> gradient) const;
    Score evaluate(std::span<const Image> images) const;

private:
    struct Activations;
    Activations forward(const Image& image) const;
    static void score(const Activations& a, const Image& image, Score& score);

    std::vector<double> parameters_;
};

/// SGD with momentum.
class Optimizer {
public:
    Optimizer(double rate, double momentum)
        : rate_(rate), momentum_(momentum), velocity_(parameter_count) {}
    void step(std::span<double> parameters, std::span<const double> gradient);

private:
    double rate_;
    double momentum_;
    std::vector<double> velocity_;
};

}  // namespace digits
