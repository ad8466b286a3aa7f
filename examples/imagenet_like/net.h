// Three convolutions with synchronised batch-norm, the mean over the pixels, and ten classes.
#pragma once

#include <cstdint>
#include <vector>

#include "layers.h"
#include "reader.h"

namespace imagenet_like {

inline constexpr int64_t side = 8;
inline constexpr int64_t classes = 10;

/// Reads at most capacity images from this device's batch of *step; the pointer outlives the model.
void build_input(tutti::Model& model, const Step* const& step, int64_t capacity);
tutti::Losses build_forward(tutti::Model& model, bool training);
/// SGD with momentum; weights decay.
void build_update(tutti::Model& model, double momentum, double decay, double lr_scale);

/// Gives device 0 random weights.
void initialise(tutti::Trainer& trainer, uint64_t seed);

}  // namespace imagenet_like
