// A small net for the tests: fully connected layers with tanh, mean square error, plain SGD with
// momentum, and a running mean as a computed parameter. Its arithmetic is the host's.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tutti/trainer.hpp"

namespace net {

struct Shape {
    int samples = 4;  // of a replica's micro-batch
    std::vector<int> widths = {3, 5, 1};
    double rate = 0.1;
    double momentum = 0.5;
    bool statistics = false;  // a running mean of the first layer's input
};

/// In (-1, 1), the same for the same number.
inline double noise(uint64_t number) {
    number = (number + 1) * 0x9E3779B97F4A7C15u;
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9u;
    number = (number ^ (number >> 27)) * 0x94D049BB133111EBu;
    return static_cast<double>(static_cast<int64_t>(number ^ (number >> 31))) * 0x1p-63;
}

/// Fills x and target with the samples of this replica's micro-batch: the global batch is cut by
/// replica, then by micro-batch, so that the parts are the same for as many parts.
template <typename T>
void add_input(tutti::Model& m, const Shape& shape, int micro_batches) {
    const auto n = static_cast<int64_t>(shape.samples);
    const tutti_buffer x = m.input<T>("x", {n, shape.widths.front()});
    const tutti_buffer target = m.input<T>("target", {n, shape.widths.back()});
    const int replica = m.replica(), replicas = m.replicas();
    m.operation("read", {}, {x, target}, [=](const tutti::Step& s) {
        const auto parts = static_cast<uint64_t>(replicas * micro_batches);
        const auto part = static_cast<uint64_t>(replica * micro_batches + s.micro_batch());
        const uint64_t first =
            (static_cast<uint64_t>(s.iteration()) * parts + part) * static_cast<uint64_t>(n);
        const auto in = static_cast<uint64_t>(shape.widths.front());
        const auto out = static_cast<uint64_t>(shape.widths.back());
        for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
            double sum = 0;
            for (uint64_t k = 0; k < in; ++k) {
                const double value = noise((first + i) * in + k);
                s.data<T>(x)[i * in + k] = static_cast<T>(value);
                sum += value;
            }
            for (uint64_t k = 0; k < out; ++k)
                s.data<T>(target)[i * out + k] = static_cast<T>(std::sin(sum));
        }
    });
}

template <typename T>
tutti_buffer add_layer(tutti::Model& m, const std::string& name, tutti_buffer x, int64_t n,
                       int64_t in, int64_t out) {
    m.enter(name);
    const tutti_buffer w = m.parameter<T>("w", {out, in});
    const tutti_buffer b = m.parameter<T>("b", {out});
    const tutti_buffer y = m.activation<T>("y", {n, out});
    const auto forward = [=](const tutti::Step& s) {
        const T* weights = s.data<T>(w);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t o = 0; o < out; ++o) {
                T sum = s.data<T>(b)[o];
                for (int64_t k = 0; k < in; ++k)
                    sum += weights[o * in + k] * s.data<T>(x)[i * in + k];
                s.data<T>(y)[i * out + o] = std::tanh(sum);
            }
    };
    const auto backward = [=](const tutti::Step& s) {
        T* dx = s.gradient<T>(x);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t o = 0; o < out; ++o) {
                const T value = s.data<T>(y)[i * out + o];
                const T d = s.gradient<T>(y)[i * out + o] * (1 - value * value);
                s.gradient<T>(b)[o] += d;
                for (int64_t k = 0; k < in; ++k) {
                    s.gradient<T>(w)[o * in + k] += d * s.data<T>(x)[i * in + k];
                    if (dx) dx[i * in + k] += d * s.data<T>(w)[o * in + k];
                }
            }
    };
    m.operation("fc", {x, w, b}, {y}, forward, backward);
    m.leave();
    return y;
}

template <typename T>
tutti_buffer add_loss(tutti::Model& m, tutti_buffer y, tutti_buffer target, int64_t n,
                      int64_t width) {
    const tutti_buffer loss = m.activation<T>("loss", {1});
    const auto samples = [n](const tutti::Step& s) { return s.samples() < 0 ? n : s.samples(); };
    m.operation(
        "mse", {y, target}, {loss},
        [=](const tutti::Step& s) {
            double sum = 0;
            for (int64_t i = 0; i < samples(s) * width; ++i) {
                const double d = s.data<T>(y)[i] - s.data<T>(target)[i];
                sum += d * d;
            }
            *s.data<T>(loss) =
                static_cast<T>(s.loss_scale() * sum / static_cast<double>(samples(s)));
        },
        [=](const tutti::Step& s) {
            const double scale =
                *s.gradient<T>(loss) * s.loss_scale() * 2 / static_cast<double>(samples(s));
            for (int64_t i = 0; i < samples(s) * width; ++i)
                s.gradient<T>(y)[i] +=
                    static_cast<T>(scale * (s.data<T>(y)[i] - s.data<T>(target)[i]));
        });
    return loss;
}

template <typename T>
void add_statistics(tutti::Model& m, tutti_buffer x, int64_t n, int64_t width) {
    const tutti_buffer mean = m.computed<T>("running_mean", {width});
    const tutti_buffer count = m.computed<int64_t>("batches", {1});
    m.operation("statistics", {x, mean, count}, {mean, count}, [=](const tutti::Step& s) {
        for (int64_t k = 0; k < width; ++k) {
            T sum = 0;
            for (int64_t i = 0; i < n; ++i) sum += s.data<T>(x)[i * width + k];
            s.data<T>(mean)[k] =
                static_cast<T>(0.9) * s.data<T>(mean)[k] + static_cast<T>(0.1) * sum / T(n);
        }
        *s.data<int64_t>(count) += 1;
    });
}

/// Momentum and step for every parameter named.
template <typename T>
void add_update(tutti::Model& m, const std::vector<std::string>& names, double rate,
                double momentum, double lr_scale) {
    const tutti_buffer lr = m.learning_rate(rate);
    m.iteration();
    for (const std::string& name : names) {
        const tutti_buffer p = m.find(name);
        const tutti_buffer g = m.gradient(p);
        std::string plain = name;
        for (char& c : plain)
            if (c == '/') c = '.';
        int64_t count = 1;
        for (int64_t extent : m.shape(p)) count *= extent;
        const tutti_buffer v = m.state<T>(plain + ".momentum", {count});
        m.operation("update." + plain, {p, g, v, lr}, {p, v}, [=](const tutti::Step& s) {
            const double step = *s.data<double>(lr) * lr_scale;
            for (int64_t i = 0; i < count; ++i) {
                s.data<T>(v)[i] = static_cast<T>(momentum) * s.data<T>(v)[i] + s.data<T>(g)[i];
                s.data<T>(p)[i] -= static_cast<T>(step) * s.data<T>(v)[i];
            }
        });
    }
}

inline std::vector<std::string> parameter_names(const Shape& shape) {
    std::vector<std::string> names;
    for (std::size_t l = 1; l < shape.widths.size(); ++l) {
        names.push_back("layer" + std::to_string(l) + "/w");
        names.push_back("layer" + std::to_string(l) + "/b");
    }
    return names;
}

template <typename T>
tutti::TrainerSpec spec(const Shape& shape, int devices, tutti_comm* comm = nullptr,
                        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT) {
    tutti::TrainerSpec spec;
    spec.devices = devices;
    spec.comm = comm;
    spec.options = options;
    const int micro_batches = options.micro_batches;
    spec.input = [=](tutti::Model& m) { add_input<T>(m, shape, micro_batches); };
    spec.forward = [=](tutti::Model& m, double) {
        tutti_buffer at = m.find("x");
        if (shape.statistics) add_statistics<T>(m, at, shape.samples, shape.widths.front());
        for (std::size_t l = 1; l < shape.widths.size(); ++l)
            at = add_layer<T>(m, "layer" + std::to_string(l), at, shape.samples,
                              shape.widths[l - 1], shape.widths[l]);
        return tutti::Losses{
            add_loss<T>(m, at, m.find("target"), shape.samples, shape.widths.back())};
    };
    spec.update = [=](tutti::Model& m, double lr_scale) {
        add_update<T>(m, parameter_names(shape), shape.rate, shape.momentum, lr_scale);
    };
    return spec;
}

/// Parameters that are no zeroes, on device 0; init_sync spreads them.
template <typename T>
void initialise(tutti::Trainer& trainer, const Shape& shape) {
    uint64_t number = 1000;
    for (const std::string& name : parameter_names(shape)) {
        std::vector<T> values = trainer.read<T>(0, name);
        for (T& value : values) value = static_cast<T>(noise(number++) / 2);
        trainer.write(0, name, values);
    }
}

/// All parameters of a device, one after the other.
template <typename T>
std::vector<T> parameters(const tutti::Trainer& trainer, const Shape& shape, int device = 0) {
    std::vector<T> all;
    for (const std::string& name : parameter_names(shape)) {
        const std::vector<T> values = trainer.read<T>(device, name);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

template <typename T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return INFINITY;
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::fmax(largest, std::fabs(static_cast<double>(a[i]) - b[i]));
    return largest;
}

}  // namespace net
