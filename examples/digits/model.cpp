#include "model.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace digits {
namespace {

constexpr const char* parameters[] = {"fc1/w",     "fc1/b", "norm/gamma",
                                      "norm/beta", "fc2/w", "fc2/b"};
constexpr const char* computed[] = {"norm/running_mean", "norm/running_variance"};

// Uniform in ±1; std::uniform_real_distribution differs between libraries.
double uniform(std::mt19937_64& random) {
    return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
}

void fill(tutti::Trainer& trainer, const char* name, const auto& value) {
    std::vector<double> values = trainer.read<double>(0, name);
    for (double& v : values) v = value();
    trainer.write(0, name, values);
}

}  // namespace

void build_input(tutti::Model& model, const Shares& shares, int64_t capacity) {
    const tutti_buffer x = model.input<double>("x", {capacity, pixels});
    const tutti_buffer labels = model.input<int64_t>("labels", {capacity});
    model.operation("read", {}, {x, labels}, [&shares, x, labels](const tutti::Step& s) {
        double* values = s.data<double>(x);
        int64_t* label = s.data<int64_t>(labels);
        for (const Image* image : shares[static_cast<std::size_t>(s.device())]) {
            values = std::copy(image->values.begin(), image->values.end(), values);
            *label++ = static_cast<int64_t>(image->label);
        }
    });
}

tutti::Losses build_forward(tutti::Model& model, bool training) {
    const tutti_buffer x = model.find("x");
    const Values images{x, model.shape(x)[0], pixels};
    const Values units = fully_connected(model, "fc1", images, hidden);
    const Values active = tanh(model, "tanh", batch_norm(model, "norm", units, training));
    const Values logits = fully_connected(model, "fc2", active, classes);
    return {softmax_loss(model, logits, model.find("labels"))};
}

void build_update(tutti::Model& model, double rate, double momentum, double lr_scale) {
    const tutti_buffer lr = model.learning_rate(rate);
    model.iteration();
    for (const char* name : parameters) {
        model.enter("sgd");
        const tutti_buffer p = model.find(name), g = model.gradient(p);
        const tutti::Shape shape = model.shape(p);
        const int64_t count = shape.size() == 2 ? shape[0] * shape[1] : shape[0];
        std::string plain = name;
        std::replace(plain.begin(), plain.end(), '/', '.');
        const tutti_buffer v = model.state<double>(plain, {count});
        model.operation(plain, {p, g, v, lr}, {p, v}, [=](const tutti::Step& s) {
            double* velocity = s.data<double>(v);
            const double step = *s.data<double>(lr) * lr_scale;
            for (int64_t i = 0; i < count; ++i) {
                velocity[i] = momentum * velocity[i] + s.data<double>(g)[i];
                s.data<double>(p)[i] -= step * velocity[i];
            }
        });
        model.leave();
    }
}

void initialise(tutti::Trainer& trainer, uint64_t seed) {
    std::mt19937_64 random(seed);
    fill(trainer, "fc1/w", [&] { return uniform(random) / std::sqrt(pixels); });
    fill(trainer, "fc2/w", [&] { return uniform(random) / std::sqrt(hidden); });
    fill(trainer, "norm/gamma", [] { return 1.0; });
    fill(trainer, "norm/running_variance", [] { return 1.0; });
}

std::vector<double> values_of(const tutti::Trainer& trainer, int device) {
    std::vector<double> all;
    const auto add = [&](const char* name) {
        const std::vector<double> values = trainer.read<double>(device, name);
        all.insert(all.end(), values.begin(), values.end());
    };
    for (const char* name : parameters) add(name);
    for (const char* name : computed) add(name);
    return all;
}

}  // namespace digits
