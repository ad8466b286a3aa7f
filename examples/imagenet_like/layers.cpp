#include "layers.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

namespace imagenet_like {
namespace {

constexpr int64_t kernel = 3;

/// c (m × n) = op(a) · op(b) + beta · c.
void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
             float beta, float* c) {
    const auto number = [](int64_t value) { return static_cast<int>(value); };
    if (m == 0) return;
    // A BLAS requires leading dimensions of at least 1, even if there is nothing to add up.
    const auto leading = [&](int64_t value) { return std::max(1, number(value)); };
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                number(m), number(n), number(k), 1, a, leading(ta ? m : k), b, leading(tb ? k : n),
                beta, c, number(n));
}

/// Calls call(column, place) for each patch pixel: `column` is its index in the columns, `place`
/// the index of its first channel in the images, or -1 for the border.
void each_patch(const Values& x, const Values& y, int64_t stride, int64_t images,
                const auto& call) {
    int64_t column = 0;
    for (int64_t image = 0; image < images; ++image)
        for (int64_t row = 0; row < y.side; ++row)
            for (int64_t at = 0; at < y.side; ++at)
                for (int64_t dy = -1; dy <= 1; ++dy)
                    for (int64_t dx = -1; dx <= 1; ++dx, column += x.channels) {
                        const int64_t from_y = row * stride + dy, from_x = at * stride + dx;
                        const bool inside =
                            from_y >= 0 && from_y < x.side && from_x >= 0 && from_x < x.side;
                        const int64_t pixel = (image * x.side + from_y) * x.side + from_x;
                        call(column, inside ? pixel * x.channels : -1);
                    }
}

/// A product y = x w', with w' the transposed weights.
struct Product {
    tutti_buffer x, w, y;
    int64_t rows, inputs, outputs;  // rows of each image
};

void add_product(tutti::Model& model, const Product& p) {
    model.operation(
        "product", {p.x, p.w}, {p.y},
        [=](const tutti::Step& s) {
            product(false, true, s.samples() * p.rows, p.outputs, p.inputs, s.data<float>(p.x),
                    s.data<float>(p.w), 0, s.data<float>(p.y));
        },
        [=](const tutti::Step& s) {
            const int64_t rows = s.samples() * p.rows;
            const float* dy = s.gradient<float>(p.y);
            product(true, false, p.outputs, p.inputs, rows, dy, s.data<float>(p.x), 1,
                    s.gradient<float>(p.w));
            if (float* dx = s.gradient<float>(p.x); dx != nullptr)
                product(false, false, rows, p.inputs, p.outputs, dy, s.data<float>(p.w), 1, dx);
        });
}

}  // namespace

Values convolution(tutti::Model& model, const std::string& name, const Values& x, int64_t channels,
                   int64_t stride) {
    model.enter(name);
    const int64_t side = (x.side - 1) / stride + 1, width = kernel * kernel * x.channels;
    const tutti_buffer columns = model.activation<float>("columns", {x.n, side, side, width});
    const tutti_buffer w = model.parameter<float>("w", {channels, width});
    const Values y{model.activation<float>("y", {x.n, side, side, channels}), x.n, side, channels};
    model.operation(
        "columns", {x.buffer}, {columns},
        [=](const tutti::Step& s) {
            const float* from = s.data<float>(x.buffer);
            float* to = s.data<float>(columns);
            each_patch(x, y, stride, s.samples(), [&](int64_t column, int64_t pixel) {
                if (pixel < 0)
                    std::fill_n(to + column, x.channels, 0.0F);
                else
                    std::copy_n(from + pixel, x.channels, to + column);
            });
        },
        [=](const tutti::Step& s) {
            const float* from = s.gradient<float>(columns);
            float* to = s.gradient<float>(x.buffer);
            each_patch(x, y, stride, s.samples(), [&](int64_t column, int64_t pixel) {
                for (int64_t k = 0; pixel >= 0 && k < x.channels; ++k)
                    to[pixel + k] += from[column + k];
            });
        });
    add_product(model, {columns, w, y.buffer, side * side, width, channels});
    model.leave();
    return y;
}

Values average(tutti::Model& model, const std::string& name, const Values& x) {
    const Values y{model.activation<float>(name, {x.n, x.channels}), x.n, 1, x.channels};
    const int64_t pixels = x.pixels(), channels = x.channels;
    const float share = 1 / static_cast<float>(pixels);
    model.operation(
        name, {x.buffer}, {y.buffer},
        [=](const tutti::Step& s) {
            const float* from = s.data<float>(x.buffer);
            float* to = s.data<float>(y.buffer);
            for (int64_t i = 0; i < s.samples(); ++i, to += channels) {
                std::fill_n(to, channels, 0.0F);
                for (int64_t p = 0; p < pixels; ++p, from += channels)
                    for (int64_t k = 0; k < channels; ++k) to[k] += from[k] * share;
            }
        },
        [=](const tutti::Step& s) {
            const float* from = s.gradient<float>(y.buffer);
            float* to = s.gradient<float>(x.buffer);
            for (int64_t i = 0; i < s.samples(); ++i, from += channels)
                for (int64_t p = 0; p < pixels; ++p, to += channels)
                    for (int64_t k = 0; k < channels; ++k) to[k] += from[k] * share;
        });
    return y;
}

Values fully_connected(tutti::Model& model, const std::string& name, const Values& x,
                       int64_t width) {
    model.enter(name);
    const tutti_buffer w = model.parameter<float>("w", {width, x.channels});
    const tutti_buffer b = model.parameter<float>("b", {width});
    const tutti_buffer plain = model.activation<float>("plain", {x.n, width});
    const Values y{model.activation<float>("y", {x.n, width}), x.n, 1, width};
    add_product(model, {x.buffer, w, plain, 1, x.channels, width});
    model.operation(
        "bias", {plain, b}, {y.buffer},
        [=](const tutti::Step& s) {
            for (int64_t i = 0; i < s.samples() * width; ++i)
                s.data<float>(y.buffer)[i] = s.data<float>(plain)[i] + s.data<float>(b)[i % width];
        },
        [=](const tutti::Step& s) {
            for (int64_t i = 0; i < s.samples() * width; ++i) {
                s.gradient<float>(plain)[i] += s.gradient<float>(y.buffer)[i];
                s.gradient<float>(b)[i % width] += s.gradient<float>(y.buffer)[i];
            }
        });
    model.leave();
    return y;
}

namespace {

/// One image's probabilities from its logits; the cross-entropy of the label.
double softmax(const float* in, int64_t width, int64_t label, double* p) {
    const double largest = *std::max_element(in, in + width);
    double total = 0;
    for (int64_t c = 0; c < width; ++c) total += p[c] = std::exp(in[c] - largest);
    for (int64_t c = 0; c < width; ++c) p[c] /= total;
    return -std::log(std::max(p[label], 1e-300));
}

/// The number of classes ranked before the label; all others if a NaN makes them incomparable.
int64_t place_of(const double* p, int64_t width, int64_t label) {
    return std::count_if(p, p + width, [&](const double& other) {
        return &other != p + label && !(p[label] > other);
    });
}

}  // namespace

tutti_buffer softmax_loss(tutti::Model& model, const Values& logits, tutti_buffer labels) {
    const int64_t width = logits.channels;
    const tutti_buffer share = model.activation<double>("probabilities", {logits.n, width});
    const tutti_buffer correct = model.activation<double>("correct", {2}, TUTTI_KEEP);
    const tutti_buffer loss = model.activation<double>("loss", {1});
    const auto forward = [=](const tutti::Step& s) {
        double sum = 0, first = 0, among_five = 0;
        for (int64_t i = 0; i < s.samples(); ++i) {
            double* p = s.data<double>(share) + i * width;
            const int64_t label = s.data<int64_t>(labels)[i];
            sum += softmax(s.data<float>(logits.buffer) + i * width, width, label, p);
            const int64_t place = place_of(p, width, label);
            first += place < 1;
            among_five += place < 5;
        }
        *s.data<double>(loss) = s.loss_scale() * sum / static_cast<double>(s.samples());
        s.data<double>(correct)[0] = first;
        s.data<double>(correct)[1] = among_five;
    };
    const auto backward = [=](const tutti::Step& s) {
        const double scale =
            *s.gradient<double>(loss) * s.loss_scale() / static_cast<double>(s.samples());
        for (int64_t i = 0; i < s.samples(); ++i)
            for (int64_t c = 0; c < width; ++c) {
                const double target = c == s.data<int64_t>(labels)[i] ? 1 : 0;
                s.gradient<float>(logits.buffer)[i * width + c] +=
                    static_cast<float>(scale * (s.data<double>(share)[i * width + c] - target));
            }
    };
    model.operation("softmax_loss", {logits.buffer, labels}, {share, correct, loss}, forward,
                    backward);
    return loss;
}

}  // namespace imagenet_like
