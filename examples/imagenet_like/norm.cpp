// Batch normalisation over all replicas; one collective adds up their statistics.
#include <algorithm>
#include <cmath>
#include <vector>

#include "layers.h"

namespace imagenet_like {
namespace {

constexpr double epsilon = 1e-5;
constexpr double running_share = 0.1;

struct Norm {
    Values x, y;
    tutti_buffer gamma, beta;
    tutti_buffer mean, variance;  // computed parameters
};

/// y = scale · x + offset, for each channel.
struct Line {
    std::vector<float> scale, offset;
};

struct Moments {
    double mean, variance;
    double inverse() const { return 1 / std::sqrt(variance + epsilon); }
};

Moments moments(const double* totals, int64_t channels, int64_t k) {
    const double count = totals[2 * channels];
    const double mean = totals[k] / count;
    return {mean, std::max(0.0, totals[channels + k] / count - mean * mean)};
}

void apply(const tutti::Step& s, const Norm& n, const auto& moments_of) {
    const int64_t channels = n.x.channels, rows = s.samples() * n.x.pixels();
    Line line{std::vector<float>(static_cast<std::size_t>(channels)), {}};
    line.offset = line.scale;
    for (int64_t k = 0; k < channels; ++k) {
        const Moments m = moments_of(k);
        const double scale = s.data<float>(n.gamma)[k] * m.inverse();
        line.scale[static_cast<std::size_t>(k)] = static_cast<float>(scale);
        line.offset[static_cast<std::size_t>(k)] =
            static_cast<float>(s.data<float>(n.beta)[k] - scale * m.mean);
    }
    const float *x = s.data<float>(n.x.buffer), *scale = line.scale.data(),
                *offset = line.offset.data();
    float* y = s.data<float>(n.y.buffer);
    for (int64_t i = 0; i < rows; ++i, x += channels, y += channels)
        for (int64_t k = 0; k < channels; ++k) y[k] = std::max(0.0F, x[k] * scale[k] + offset[k]);
}

// Fills sums: the sums of the values, the sums of their squares and, last, the number of values of
// each channel.
void add_sums(tutti::Model& model, const Values& x, tutti_buffer sums) {
    const int64_t channels = x.channels, pixels = x.pixels();
    model.operation(
        "sums", {x.buffer}, {sums},
        [=](const tutti::Step& s) {
            double* sum = s.data<double>(sums);
            std::fill(sum, sum + 2 * channels + 1, 0.0);
            const float* value = s.data<float>(x.buffer);
            for (int64_t i = 0; i < s.samples() * pixels; ++i, value += channels)
                for (int64_t k = 0; k < channels; ++k) {
                    sum[k] += value[k];
                    sum[channels + k] += double{value[k]} * value[k];
                }
            sum[2 * channels] = static_cast<double>(s.samples() * pixels);
        },
        [=](const tutti::Step& s) {
            const double* d = s.gradient<double>(sums);
            const float* value = s.data<float>(x.buffer);
            float* dx = s.gradient<float>(x.buffer);
            for (int64_t i = 0; i < s.samples() * pixels; ++i, value += channels, dx += channels)
                for (int64_t k = 0; k < channels; ++k)
                    dx[k] += static_cast<float>(d[k] + 2 * value[k] * d[channels + k]);
        });
}

void forward(const tutti::Step& s, const Norm& n, tutti_buffer totals) {
    const int64_t channels = n.x.channels;
    const double* all = s.data<double>(totals);
    apply(s, n, [&](int64_t k) { return moments(all, channels, k); });
    const auto follow = [](float& running, double now) {
        running += static_cast<float>(running_share * (now - running));
    };
    for (int64_t k = 0; k < channels; ++k) {
        const Moments m = moments(all, channels, k);
        follow(s.data<float>(n.mean)[k], m.mean);
        follow(s.data<float>(n.variance)[k], m.variance);
    }
}

// Σ dy and Σ dy (x - mean), over the values of this replica that ReLU did not set to 0.
std::vector<double> gradient_sums(const tutti::Step& s, const Norm& n, const double* totals) {
    const int64_t channels = n.x.channels;
    std::vector<double> sums(static_cast<std::size_t>(2 * channels)), mean(sums.size() / 2);
    for (int64_t k = 0; k < channels; ++k)
        mean[static_cast<std::size_t>(k)] = moments(totals, channels, k).mean;
    const float *x = s.data<float>(n.x.buffer), *y = s.data<float>(n.y.buffer),
                *dy = s.gradient<float>(n.y.buffer);
    double *plain = sums.data(), *centred = plain + channels;
    for (int64_t i = 0; i < s.samples() * n.x.pixels(); ++i) {
        for (int64_t k = 0; k < channels; ++k) {
            const double d = y[k] > 0 ? dy[k] : 0.0F;
            plain[k] += d;
            centred[k] += d * (x[k] - mean[static_cast<std::size_t>(k)]);
        }
        x += channels, y += channels, dy += channels;
    }
    return sums;
}

// The statistics have gradients too. These go to the sums, and from there to the images of all
// replicas.
void backward(const tutti::Step& s, const Norm& n, tutti_buffer totals) {
    const int64_t channels = n.x.channels;
    const double *all = s.data<double>(totals), count = all[2 * channels];
    const std::vector<double> sums = gradient_sums(s, n, all);
    double* d_totals = s.gradient<double>(totals);
    std::vector<float> scale(static_cast<std::size_t>(channels));
    for (int64_t k = 0; k < channels; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const Moments m = moments(all, channels, k);
        const double inverse = m.inverse(), gamma = s.data<float>(n.gamma)[k];
        const double plain = sums[at], centred = sums[at + static_cast<std::size_t>(channels)];
        s.gradient<float>(n.gamma)[k] += static_cast<float>(centred * inverse);
        s.gradient<float>(n.beta)[k] += static_cast<float>(plain);
        scale[at] = static_cast<float>(gamma * inverse);
        const double d_mean = -plain * gamma * inverse;
        const double d_variance = -0.5 * centred * gamma * inverse * inverse * inverse;
        d_totals[k] += (d_mean - 2 * m.mean * d_variance) / count;
        d_totals[channels + k] += d_variance / count;
    }
    const float *y = s.data<float>(n.y.buffer), *dy = s.gradient<float>(n.y.buffer);
    float* dx = s.gradient<float>(n.x.buffer);
    for (int64_t i = 0; i < s.samples() * n.x.pixels(); ++i) {
        for (int64_t k = 0; k < channels; ++k)
            if (y[k] > 0) dx[k] += dy[k] * scale[static_cast<std::size_t>(k)];
        y += channels, dy += channels, dx += channels;
    }
}

}  // namespace

Values norm_relu(tutti::Model& model, const std::string& name, const Values& x, bool training) {
    model.enter(name);
    const int64_t channels = x.channels;
    const Norm n{
        .x = x,
        .y = {model.activation<float>("y", {x.n, x.side, x.side, channels}), x.n, x.side, channels},
        .gamma = model.parameter<float>("gamma", {channels}),
        .beta = model.parameter<float>("beta", {channels}),
        .mean = model.computed<float>("running_mean", {channels}),
        .variance = model.computed<float>("running_variance", {channels})};
    if (training) {
        const tutti_buffer sums = model.activation<double>("own_sums", {2 * channels + 1});
        const tutti_buffer totals = model.activation<double>("all_sums", {2 * channels + 1});
        add_sums(model, x, sums);
        model.collective("all", TUTTI_COLLECTIVE_ALLREDUCE, sums, totals);
        model.operation(
            "normalise", {x.buffer, totals, n.gamma, n.beta, n.mean, n.variance},
            {n.y.buffer, n.mean, n.variance}, [=](const tutti::Step& s) { forward(s, n, totals); },
            [=](const tutti::Step& s) { backward(s, n, totals); });
    } else {
        model.operation(
            "normalise", {x.buffer, n.gamma, n.beta, n.mean, n.variance}, {n.y.buffer},
            [=](const tutti::Step& s) {
                apply(s, n, [&](int64_t k) {
                    return Moments{s.data<float>(n.mean)[k], s.data<float>(n.variance)[k]};
                });
            });
    }
    model.leave();
    return n.y;
}

}  // namespace imagenet_like
