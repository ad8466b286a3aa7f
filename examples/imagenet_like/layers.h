// The net's arithmetic, as operations of a model, in float32; the products are a BLAS's. Values lie
// image by image, row by row, the channels of a pixel together.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/trainer.hpp"

namespace imagenet_like {

/// Room for n images of side × side pixels.
struct Values {
    tutti_buffer buffer;
    int64_t n;
    int64_t side;
    int64_t channels;
    int64_t pixels() const { return side * side; }
};

/// 3 × 3, with a border of one zero; the parameter name/w. As im2col and one product.
Values convolution(tutti::Model& model, const std::string& name, const Values& x, int64_t channels,
                   int64_t stride);
/// Normalises each channel over the images and pixels of all replicas together, with parameters
/// name/gamma and name/beta. The running mean and variance are computed parameters; if not
/// training, the layer uses them. Negative results become 0.
Values norm_relu(tutti::Model& model, const std::string& name, const Values& x, bool training);
/// The mean of each channel: one pixel is left.
Values average(tutti::Model& model, const std::string& name, const Values& x);
/// y = x wᵀ + b of one pixel; the parameters name/w and name/b.
Values fully_connected(tutti::Model& model, const std::string& name, const Values& x,
                       int64_t width);
/// The mean cross-entropy of the labels (int64), scaled for its replica's share. The kept buffer
/// "correct" gets two numbers: of the images that the net classifies correctly, and of the images
/// with their label among the best five classes.
tutti_buffer softmax_loss(tutti::Model& model, const Values& logits, tutti_buffer labels);

}  // namespace imagenet_like
