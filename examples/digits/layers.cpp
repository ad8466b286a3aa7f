#include "layers.h"

#include <algorithm>
#include <cmath>

namespace digits {
namespace {

constexpr double epsilon = 1e-5;
constexpr double running_share = 0.1;  // the weight of a batch in the running statistics

}  // namespace

Values fully_connected(tutti::Model& model, const std::string& name, const Values& x,
                       int64_t width) {
    model.enter(name);
    const tutti_buffer w = model.parameter<double>("w", {width, x.width});
    const tutti_buffer b = model.parameter<double>("b", {width});
    const Values y{model.activation<double>("y", {x.n, width}), x.n, width};
    const int64_t in = x.width;
    const auto forward = [=](const tutti::Step& s) {
        const double* weights = s.data<double>(w);
        for (int64_t i = 0; i < s.samples(); ++i)
            for (int64_t o = 0; o < width; ++o) {
                double sum = s.data<double>(b)[o];
                const double* row = s.data<double>(x.buffer) + i * in;
                for (int64_t k = 0; k < in; ++k) sum += weights[o * in + k] * row[k];
                s.data<double>(y.buffer)[i * width + o] = sum;
            }
    };
    const auto backward = [=](const tutti::Step& s) {
        const double* weights = s.data<double>(w);
        double* dw = s.gradient<double>(w);
        double* dx = s.gradient<double>(x.buffer);
        for (int64_t i = 0; i < s.samples(); ++i)
            for (int64_t o = 0; o < width; ++o) {
                const double d = s.gradient<double>(y.buffer)[i * width + o];
                const double* row = s.data<double>(x.buffer) + i * in;
                s.gradient<double>(b)[o] += d;
                for (int64_t k = 0; k < in; ++k) dw[o * in + k] += d * row[k];
                if (dx)
                    for (int64_t k = 0; k < in; ++k) dx[i * in + k] += d * weights[o * in + k];
            }
    };
    model.operation("fc", {x.buffer, w, b}, {y.buffer}, forward, backward);
    model.leave();
    return y;
}

Values tanh(tutti::Model& model, const std::string& name, const Values& x) {
    const Values y{model.activation<double>(name, {x.n, x.width}), x.n, x.width};
    model.operation(
        name, {x.buffer}, {y.buffer},
        [=](const tutti::Step& s) {
            for (int64_t i = 0; i < s.samples() * x.width; ++i)
                s.data<double>(y.buffer)[i] = std::tanh(s.data<double>(x.buffer)[i]);
        },
        [=](const tutti::Step& s) {
            for (int64_t i = 0; i < s.samples() * x.width; ++i) {
                const double value = s.data<double>(y.buffer)[i];
                s.gradient<double>(x.buffer)[i] +=
                    s.gradient<double>(y.buffer)[i] * (1 - value * value);
            }
        });
    return y;
}

namespace {

struct Norm {
    Values x, y;
    tutti_buffer gamma, beta;
    tutti_buffer mean, variance;  // computed parameters
};

void normalise_with_running(tutti::Model& model, const Norm& n) {
    const int64_t width = n.x.width;
    model.operation(
        "normalise", {n.x.buffer, n.gamma, n.beta, n.mean, n.variance}, {n.y.buffer},
        [=](const tutti::Step& s) {
            for (int64_t i = 0; i < s.samples(); ++i)
                for (int64_t k = 0; k < width; ++k) {
                    const double unit =
                        (s.data<double>(n.x.buffer)[i * width + k] - s.data<double>(n.mean)[k]) /
                        std::sqrt(s.data<double>(n.variance)[k] + epsilon);
                    s.data<double>(n.y.buffer)[i * width + k] =
                        s.data<double>(n.gamma)[k] * unit + s.data<double>(n.beta)[k];
                }
        });
}

// Fills sums: the sums of the values, the sums of their squares and, last, the number of samples.
void add_sums(tutti::Model& model, const Values& x, tutti_buffer sums) {
    const int64_t width = x.width;
    model.operation(
        "sums", {x.buffer}, {sums},
        [=](const tutti::Step& s) {
            double* sum = s.data<double>(sums);
            std::fill(sum, sum + 2 * width + 1, 0.0);
            for (int64_t i = 0; i < s.samples(); ++i)
                for (int64_t k = 0; k < width; ++k) {
                    const double value = s.data<double>(x.buffer)[i * width + k];
                    sum[k] += value;
                    sum[width + k] += value * value;
                }
            sum[2 * width] = static_cast<double>(s.samples());
        },
        [=](const tutti::Step& s) {
            const double* d = s.gradient<double>(sums);
            for (int64_t i = 0; i < s.samples(); ++i)
                for (int64_t k = 0; k < width; ++k)
                    s.gradient<double>(x.buffer)[i * width + k] +=
                        d[k] + 2 * s.data<double>(x.buffer)[i * width + k] * d[width + k];
        });
}

struct Moments {
    double mean, variance, scale;  // scale: 1 / standard deviation
};

Moments moments(const double* totals, int64_t width, int64_t k) {
    const double count = totals[2 * width];
    const double mean = totals[k] / count;
    const double variance = totals[width + k] / count - mean * mean;
    return {mean, variance, 1 / std::sqrt(variance + epsilon)};
}

void normalise_forward(const tutti::Step& s, const Norm& n, tutti_buffer totals) {
    const int64_t width = n.x.width;
    for (int64_t k = 0; k < width; ++k) {
        const Moments m = moments(s.data<double>(totals), width, k);
        for (int64_t i = 0; i < s.samples(); ++i)
            s.data<double>(n.y.buffer)[i * width + k] =
                s.data<double>(n.gamma)[k] * (s.data<double>(n.x.buffer)[i * width + k] - m.mean) *
                    m.scale +
                s.data<double>(n.beta)[k];
        double& mean = s.data<double>(n.mean)[k];
        double& variance = s.data<double>(n.variance)[k];
        mean += running_share * (m.mean - mean);
        variance += running_share * (m.variance - variance);
    }
}

// The statistics have gradients too. These go to the sums, and from there to the samples of all
// replicas.
void normalise_backward(const tutti::Step& s, const Norm& n, tutti_buffer totals) {
    const int64_t width = n.x.width;
    const double count = s.data<double>(totals)[2 * width];
    double* d_totals = s.gradient<double>(totals);
    for (int64_t k = 0; k < width; ++k) {
        const Moments m = moments(s.data<double>(totals), width, k);
        const double gamma = s.data<double>(n.gamma)[k];
        double d_mean = 0, d_variance = 0;
        for (int64_t i = 0; i < s.samples(); ++i) {
            const double dy = s.gradient<double>(n.y.buffer)[i * width + k];
            const double centred = s.data<double>(n.x.buffer)[i * width + k] - m.mean;
            s.gradient<double>(n.gamma)[k] += dy * centred * m.scale;
            s.gradient<double>(n.beta)[k] += dy;
            s.gradient<double>(n.x.buffer)[i * width + k] += dy * gamma * m.scale;
            d_mean -= dy * gamma * m.scale;
            d_variance -= 0.5 * dy * gamma * centred * m.scale * m.scale * m.scale;
        }
        d_totals[k] += (d_mean - 2 * m.mean * d_variance) / count;
        d_totals[width + k] += d_variance / count;
    }
}

}  // namespace

Values batch_norm(tutti::Model& model, const std::string& name, const Values& x, bool training) {
    model.enter(name);
    const Norm n{.x = x,
                 .y = {model.activation<double>("y", {x.n, x.width}), x.n, x.width},
                 .gamma = model.parameter<double>("gamma", {x.width}),
                 .beta = model.parameter<double>("beta", {x.width}),
                 .mean = model.computed<double>("running_mean", {x.width}),
                 .variance = model.computed<double>("running_variance", {x.width})};
    if (!training) {
        normalise_with_running(model, n);
        model.leave();
        return n.y;
    }
    const tutti_buffer sums = model.activation<double>("own_sums", {2 * x.width + 1});
    const tutti_buffer totals = model.activation<double>("all_sums", {2 * x.width + 1});
    add_sums(model, x, sums);
    model.collective("all", TUTTI_COLLECTIVE_ALLREDUCE, sums, totals);
    model.operation(
        "normalise", {x.buffer, totals, n.gamma, n.beta, n.mean, n.variance},
        {n.y.buffer, n.mean, n.variance},
        [=](const tutti::Step& s) { normalise_forward(s, n, totals); },
        [=](const tutti::Step& s) { normalise_backward(s, n, totals); });
    model.leave();
    return n.y;
}

tutti_buffer softmax_loss(tutti::Model& model, const Values& logits, tutti_buffer labels) {
    const int64_t width = logits.width;
    const tutti_buffer share = model.activation<double>("probabilities", {logits.n, width});
    const tutti_buffer correct = model.activation<double>("correct", {1}, TUTTI_KEEP);
    const tutti_buffer loss = model.activation<double>("loss", {1});
    const auto forward = [=](const tutti::Step& s) {
        double sum = 0, right = 0;
        for (int64_t i = 0; i < s.samples(); ++i) {
            const double* in = s.data<double>(logits.buffer) + i * width;
            double* p = s.data<double>(share) + i * width;
            const double largest = *std::max_element(in, in + width);
            double total = 0;
            for (int64_t c = 0; c < width; ++c) total += p[c] = std::exp(in[c] - largest);
            for (int64_t c = 0; c < width; ++c) p[c] /= total;
            const int64_t label = s.data<int64_t>(labels)[i];
            sum -= std::log(std::max(p[label], 1e-300));
            if (std::max_element(p, p + width) - p == label) right += 1;
        }
        *s.data<double>(loss) = s.loss_scale() * sum / static_cast<double>(s.samples());
        *s.data<double>(correct) = right;
    };
    const auto backward = [=](const tutti::Step& s) {
        const double scale =
            *s.gradient<double>(loss) * s.loss_scale() / static_cast<double>(s.samples());
        for (int64_t i = 0; i < s.samples(); ++i)
            for (int64_t c = 0; c < width; ++c) {
                const double target = c == s.data<int64_t>(labels)[i] ? 1 : 0;
                s.gradient<double>(logits.buffer)[i * width + c] +=
                    scale * (s.data<double>(share)[i * width + c] - target);
            }
    };
    model.operation("softmax_loss", {logits.buffer, labels}, {share, correct, loss}, forward,
                    backward);
    return loss;
}

}  // namespace digits
