// Batch-norm's arithmetic for float32 in the host's memory. Sums are taken in double.
#include <algorithm>

#include "tutti/trainer_parallel.h"

namespace {

/// Calls use(channel, first element) for each run of inner elements.
template <typename Use>
void for_runs(std::size_t rows, std::size_t channels, std::size_t inner, Use&& use) {
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t c = 0; c < channels; ++c) use(c, (row * channels + c) * inner);
}

const float* floats(const void* data) {
    return static_cast<const float*>(data);
}
double scale_of(const void* gamma, std::size_t channel) {
    return gamma ? double{floats(gamma)[channel]} : 1.0;
}

tutti_status sums(void*, int, const void* x, size_t rows, size_t channels, size_t inner,
                  double* sums) {
    std::fill_n(sums, 2 * channels, 0.0);
    for_runs(rows, channels, inner, [&](size_t c, size_t at) {
        for (size_t i = at; i < at + inner; ++i) {
            const double value = floats(x)[i];
            sums[c] += value;
            sums[channels + c] += value * value;
        }
    });
    return TUTTI_OK;
}

tutti_status normalize(void*, int, const void* x, size_t rows, size_t channels, size_t inner,
                       const double* mean, const double* inverse, const void* gamma,
                       const void* beta, void* y) {
    for_runs(rows, channels, inner, [&](size_t c, size_t at) {
        const double scale = inverse[c] * scale_of(gamma, c);
        const double shift = beta ? double{floats(beta)[c]} : 0.0;
        for (size_t i = at; i < at + inner; ++i)
            static_cast<float*>(y)[i] =
                static_cast<float>((double{floats(x)[i]} - mean[c]) * scale + shift);
    });
    return TUTTI_OK;
}

tutti_status gradient_sums(void*, int, const void* x, const void* dy, size_t rows, size_t channels,
                           size_t inner, const double* mean, const double* inverse, double* sums) {
    std::fill_n(sums, 2 * channels, 0.0);
    for_runs(rows, channels, inner, [&](size_t c, size_t at) {
        for (size_t i = at; i < at + inner; ++i) {
            const double gradient = floats(dy)[i];
            sums[c] += gradient;
            sums[channels + c] += gradient * (double{floats(x)[i]} - mean[c]) * inverse[c];
        }
    });
    return TUTTI_OK;
}

tutti_status input_gradient(void*, int, const void* x, const void* dy, size_t rows, size_t channels,
                            size_t inner, const double* mean, const double* inverse,
                            const double* means, const void* gamma, void* dx) {
    for_runs(rows, channels, inner, [&](size_t c, size_t at) {
        const double scale = scale_of(gamma, c) * inverse[c];
        for (size_t i = at; i < at + inner; ++i) {
            const double normal = (double{floats(x)[i]} - mean[c]) * inverse[c];
            static_cast<float*>(dx)[i] = static_cast<float>(
                scale * (double{floats(dy)[i]} - means[c] - normal * means[channels + c]));
        }
    });
    return TUTTI_OK;
}

tutti_status load(void*, int, const void* from, size_t channels, double* to) {
    std::copy_n(floats(from), channels, to);
    return TUTTI_OK;
}

tutti_status store(void*, int, const double* from, size_t channels, void* to) {
    std::transform(from, from + channels, static_cast<float*>(to),
                   [](double value) { return static_cast<float>(value); });
    return TUTTI_OK;
}

constexpr tutti_bn_math host = {sizeof(tutti_bn_math), nullptr,        sums, normalize,
                                gradient_sums,         input_gradient, load, store};

}  // namespace

extern "C" const tutti_bn_math* tutti_bn_math_host(void) {
    return &host;
}
