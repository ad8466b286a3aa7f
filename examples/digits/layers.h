// The net's arithmetic, as operations of a model, in float64. A buffer has room for n samples; a
// layer processes as many as the step has.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/trainer.hpp"

namespace digits {

/// Room for n samples of width values.
struct Values {
    tutti_buffer buffer;
    int64_t n;
    int64_t width;
};

/// y = x wᵀ + b; the parameters name/w and name/b.
Values fully_connected(tutti::Model& model, const std::string& name, const Values& x,
                       int64_t width);
Values tanh(tutti::Model& model, const std::string& name, const Values& x);

/// Normalises over the samples of all replicas together, with parameters name/gamma and name/beta.
/// The running mean and variance are computed parameters; if not training, the layer uses them.
Values batch_norm(tutti::Model& model, const std::string& name, const Values& x, bool training);

/// The mean cross-entropy of the labels (int64), scaled for its replica's share. The kept buffer
/// "correct" gets the number of samples that the net classifies correctly.
tutti_buffer softmax_loss(tutti::Model& model, const Values& logits, tutti_buffer labels);

}  // namespace digits
