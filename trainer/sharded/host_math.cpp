// The layer's functions on logits in the host's memory. The program provides the products.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tutti/trainer_sharded.h"

namespace {

void* alloc(void*, size_t bytes) {
    return std::malloc(std::max<size_t>(1, bytes));
}
void release(void*, void* data) {
    std::free(data);
}

tutti_status copy(void*, float* to, const float* from, size_t count) {
    std::copy_n(from, count, to);
    return TUTTI_OK;
}

tutti_status add_bias(void*, float* logits, size_t rows, size_t cols, const float* bias) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < cols; ++c) logits[r * cols + c] += bias[c];
    return TUTTI_OK;
}

tutti_status row_max(void*, const float* logits, size_t rows, size_t cols, float* max) {
    for (size_t r = 0; r < rows; ++r) {
        float most = -std::numeric_limits<float>::infinity();
        for (size_t c = 0; c < cols; ++c) most = std::max(most, logits[r * cols + c]);
        max[r] = most;
    }
    return TUTTI_OK;
}

tutti_status pick(void*, const float* logits, size_t rows, size_t cols, const int64_t* columns,
                  double* values) {
    for (size_t r = 0; r < rows; ++r)
        values[r] = columns[r] < 0 ? 0 : logits[r * cols + static_cast<size_t>(columns[r])];
    return TUTTI_OK;
}

tutti_status exponentials(void*, float* logits, size_t rows, size_t cols, const float* max,
                          double* sums) {
    for (size_t r = 0; r < rows; ++r) {
        float* row = logits + r * cols;
        double sum = 0;
        for (size_t c = 0; c < cols; ++c) {
            row[c] = std::exp(row[c] - max[r]);
            sum += row[c];
        }
        sums[r] = sum;
    }
    return TUTTI_OK;
}

tutti_status gradient(void*, float* logits, size_t rows, size_t cols, const double* factors,
                      const int64_t* columns, double less) {
    for (size_t r = 0; r < rows; ++r) {
        float* row = logits + r * cols;
        const auto factor = static_cast<float>(factors[r]);
        for (size_t c = 0; c < cols; ++c) row[c] *= factor;
        if (columns[r] >= 0) row[columns[r]] -= static_cast<float>(less);
    }
    return TUTTI_OK;
}

tutti_status column_sums(void*, const float* logits, size_t rows, size_t cols, float* sums) {
    std::fill_n(sums, cols, 0.0F);
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < cols; ++c) sums[c] += logits[r * cols + c];
    return TUTTI_OK;
}

constexpr tutti_fc_math host = {
    sizeof(tutti_fc_math), nullptr,  alloc,      release, copy, nullptr, add_bias, row_max, pick,
    exponentials,          gradient, column_sums};

}  // namespace

extern "C" const tutti_fc_math* tutti_fc_math_host(void) {
    return &host;
}
