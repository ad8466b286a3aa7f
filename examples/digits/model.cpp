#include "model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace digits {
namespace {

// Where the pieces lie in the vector of parameters.
constexpr std::size_t w1 = 0;
constexpr std::size_t b1 = w1 + hidden * pixels;
constexpr std::size_t w2 = b1 + hidden;
constexpr std::size_t b2 = w2 + classes * hidden;
static_assert(b2 + classes == parameter_count);

// Uniform in ±1; std::uniform_real_distribution differs between libraries.
double uniform(std::mt19937_64& random) {
    return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
}

}  // namespace

struct Model::Activations {
    std::array<double, hidden> hidden_units{};
    std::array<double, classes> probabilities{};
};

Model::Model(uint64_t seed) : parameters_(parameter_count) {
    std::mt19937_64 random(seed);
    for (std::size_t i = w1; i < b1; ++i) parameters_[i] = uniform(random) / std::sqrt(pixels);
    for (std::size_t i = w2; i < b2; ++i) parameters_[i] = uniform(random) / std::sqrt(hidden);
}

Model::Activations Model::forward(const Image& image) const {
    Activations a;
    const double* p = parameters_.data();
    for (std::size_t h = 0; h < hidden; ++h) {
        double sum = p[b1 + h];
        for (std::size_t i = 0; i < pixels; ++i) sum += p[w1 + h * pixels + i] * image.values[i];
        a.hidden_units[h] = std::tanh(sum);
    }
    for (std::size_t c = 0; c < classes; ++c) {
        double sum = p[b2 + c];
        for (std::size_t h = 0; h < hidden; ++h) sum += p[w2 + c * hidden + h] * a.hidden_units[h];
        a.probabilities[c] = sum;
    }
    const double largest = *std::max_element(a.probabilities.begin(), a.probabilities.end());
    double total = 0;
    for (double& value : a.probabilities) total += value = std::exp(value - largest);
    for (double& value : a.probabilities) value /= total;
    return a;
}

void Model::score(const Activations& a, const Image& image, Score& score) {
    const auto best = std::max_element(a.probabilities.begin(), a.probabilities.end());
    score.loss -= std::log(std::max(a.probabilities[image.label], 1e-300));
    if (static_cast<std::size_t>(best - a.probabilities.begin()) == image.label) score.correct += 1;
}

Score Model::add_gradient(std::span<const Image* const> images, std::span<double> gradient) const {
    Score total;
    const double* p = parameters_.data();
    double* g = gradient.data();
    for (const Image* image : images) {
        const Activations a = forward(*image);
        score(a, *image, total);
        std::array<double, hidden> back{};
        for (std::size_t c = 0; c < classes; ++c) {
            const double error = a.probabilities[c] - (c == image->label ? 1.0 : 0.0);
            g[b2 + c] += error;
            for (std::size_t h = 0; h < hidden; ++h) {
                g[w2 + c * hidden + h] += error * a.hidden_units[h];
                back[h] += error * p[w2 + c * hidden + h];
            }
        }
        for (std::size_t h = 0; h < hidden; ++h) {
            const double error = back[h] * (1 - a.hidden_units[h] * a.hidden_units[h]);
            g[b1 + h] += error;
            for (std::size_t i = 0; i < pixels; ++i)
                g[w1 + h * pixels + i] += error * image->values[i];
        }
    }
    return total;
}

Score Model::evaluate(std::span<const Image> images) const {
    Score total;
    for (const Image& image : images) score(forward(image), image, total);
    return total;
}

void Optimizer::step(std::span<double> parameters, std::span<const double> gradient) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        velocity_[i] = momentum_ * velocity_[i] + gradient[i];
        parameters[i] -= rate_ * velocity_[i];
    }
}

}  // namespace digits
