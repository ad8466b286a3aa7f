#include "net.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

namespace imagenet_like {
namespace {

constexpr const char* weights[] = {"conv1/w", "conv2/w", "conv3/w", "fc/w"};
constexpr const char* others[] = {"norm1/gamma", "norm1/beta", "norm2/gamma", "norm2/beta",
                                  "norm3/gamma", "norm3/beta", "fc/b"};
constexpr const char* ones[] = {"norm1/gamma",
                                "norm2/gamma",
                                "norm3/gamma",
                                "norm1/running_variance",
                                "norm2/running_variance",
                                "norm3/running_variance"};

int64_t elements(const tutti::Shape& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
}

// Uniform in ±1; std::uniform_real_distribution differs between libraries.
double uniform(std::mt19937_64& random) {
    return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
}

void add_update(tutti::Model& model, const char* name, tutti_buffer lr, double momentum,
                double decay, double lr_scale) {
    const tutti_buffer p = model.find(name), g = model.gradient(p);
    const int64_t count = elements(model.shape(p));
    std::string plain = name;
    std::replace(plain.begin(), plain.end(), '/', '.');
    model.enter("sgd");
    const tutti_buffer v = model.state<float>(plain, {count});
    const auto keep = static_cast<float>(momentum), pull = static_cast<float>(decay);
    model.operation(plain, {p, g, v, lr}, {p, v}, [=](const tutti::Step& s) {
        float *value = s.data<float>(p), *velocity = s.data<float>(v);
        const float* gradient = s.data<float>(g);
        const auto step = static_cast<float>(*s.data<double>(lr) * lr_scale);
        for (int64_t i = 0; i < count; ++i) {
            velocity[i] = keep * velocity[i] + gradient[i] + pull * value[i];
            value[i] -= step * velocity[i];
        }
    });
    model.leave();
}

}  // namespace

void build_input(tutti::Model& model, const Step* const& step, int64_t capacity) {
    const tutti_buffer x = model.input<float>("x", {capacity, side, side, 1});
    const tutti_buffer labels = model.input<int64_t>("labels", {capacity});
    model.operation("read", {}, {x, labels}, [&step, x, labels](const tutti::Step& s) {
        const Batch& batch = step->at(static_cast<std::size_t>(s.device()));
        std::copy(batch.pixels.begin(), batch.pixels.end(), s.data<float>(x));
        std::copy(batch.labels.begin(), batch.labels.end(), s.data<int64_t>(labels));
    });
}

tutti::Losses build_forward(tutti::Model& model, bool training) {
    const tutti_buffer x = model.find("x");
    Values values{x, model.shape(x)[0], side, 1};
    values = norm_relu(model, "norm1", convolution(model, "conv1", values, 16, 1), training);
    values = norm_relu(model, "norm2", convolution(model, "conv2", values, 32, 2), training);
    values = norm_relu(model, "norm3", convolution(model, "conv3", values, 32, 1), training);
    const Values logits = fully_connected(model, "fc", average(model, "average", values), classes);
    return {softmax_loss(model, logits, model.find("labels"))};
}

void build_update(tutti::Model& model, double momentum, double decay, double lr_scale) {
    const tutti_buffer lr = model.learning_rate(0);  // set before every step
    model.iteration();
    for (const char* name : weights) add_update(model, name, lr, momentum, decay, lr_scale);
    for (const char* name : others) add_update(model, name, lr, momentum, 0, lr_scale);
}

void initialise(tutti::Trainer& trainer, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const char* name : weights) {
        // He et al., arXiv 1502.01852: compensates for ReLU, which halves the variance.
        const auto inputs = static_cast<double>(trainer.find(0, name).shape[1]);
        std::vector<float> values = trainer.read<float>(0, name);
        for (float& v : values) v = static_cast<float>(uniform(random) * std::sqrt(6 / inputs));
        trainer.write(0, name, values);
    }
    for (const char* name : ones)
        trainer.write(0, name, std::vector<float>(trainer.read<float>(0, name).size(), 1.0F));
}

}  // namespace imagenet_like
