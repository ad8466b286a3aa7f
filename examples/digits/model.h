// 64 pixels → 32 units, batch-normalised over all replicas, tanh → 10 classes (softmax), in
// float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataset.h"
#include "layers.h"

namespace digits {

inline constexpr int64_t hidden = 32;

/// The images that each device reads in the next step.
using Shares = std::vector<std::span<const Image* const>>;

/// Reads at most capacity images from this device's share, which outlives the model.
void build_input(tutti::Model& model, const Shares& shares, int64_t capacity);
tutti::Losses build_forward(tutti::Model& model, bool training);
/// SGD with momentum.
void build_update(tutti::Model& model, double rate, double momentum, double lr_scale);

/// Gives device 0 random weights, small enough for tanh.
void initialise(tutti::Trainer& trainer, uint64_t seed);
/// Every value that must be the same on all replicas.
std::vector<double> values_of(const tutti::Trainer& trainer, int device);

}  // namespace digits
