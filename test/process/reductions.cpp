// Operators of the program's own in every collective that reduces, by every algorithm.
// usage: tutti-run -n N reductions CASE
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "process/reductions.h"

using namespace rank_test;

namespace {

const std::size_t counts[] = {1, 17, 3000};

// ---- a product that does not commute ----

// 2 × 2 matrices of uint32 that wrap.
using Matrices = std::vector<uint32_t>;
void multiply(const void* first, const void* second, void* result, std::size_t count, tutti_dtype,
              void*) {
    const auto *a = static_cast<const uint32_t*>(first), *b = static_cast<const uint32_t*>(second);
    auto* out = static_cast<uint32_t*>(result);
    for (std::size_t i = 0; i < count; i += 4) {
        const uint32_t product[4] = {
            a[i] * b[i] + a[i + 1] * b[i + 2], a[i] * b[i + 1] + a[i + 1] * b[i + 3],
            a[i + 2] * b[i] + a[i + 3] * b[i + 2], a[i + 2] * b[i + 1] + a[i + 3] * b[i + 3]};
        std::memcpy(out + i, product, sizeof product);
    }
}

Matrices matrices(int rank, std::size_t length) {
    Matrices m(length);
    for (std::size_t i = 0; i < length; ++i)
        m[i] = static_cast<uint32_t>(1 + i % 89 * 3 + static_cast<std::size_t>(rank) * 5);
    return m;
}

Matrices product(int last, std::size_t length) {
    Matrices result = matrices(0, length);
    for (int r = 1; r < last; ++r) {
        const Matrices next = matrices(r, length);
        multiply(result.data(), next.data(), result.data(), length, TUTTI_UINT32, nullptr);
    }
    return result;
}

// Each algorithm combines in rank order, or refuses and says why. The test does not ask the catalog
// which algorithms reorder: one that does so and does not say so gives a wrong product.
void ordered(tutti_comm* comm) {
    const Members here(comm);
    tutti_op_spec spec = TUTTI_OP_SPEC_INIT;
    spec.combine = multiply;
    spec.commutative = 0;
    spec.item_elements = 4;
    tutti_op op = -1;
    need(tutti_op_create(&spec, &op), "op_create");
    const Work<uint32_t> work{TUTTI_UINT32, op, matrices, product};
    std::set<std::string> refused, right;
    for (const Form& form : forms())
        for (const std::size_t items : counts) {
            require(run_once(form, here, work, items * 4, nullptr), "tutti's own choice");
            for (const std::string& algorithm : algorithms_of(form)) {
                if (run_once(form, here, work, items * 4, algorithm.c_str())) {
                    right.insert(form.name);
                } else if (algorithm != "flat") {
                    require(std::strstr(tutti_last_error(), "another order than the ranks'"),
                            algorithm);
                    refused.insert(form.name + (" by " + algorithm));
                }
            }
        }
    require(right.size() == 5, "an algorithm in rank order for each collective");
    for (const char* reorders : {"allreduce by ring", "allreduce by circulant",
                                 "reduce_scatter by ring", "reduce_scatter by circulant"})
        require(refused.count(reorders) == 1, std::string(reorders) + " was not refused");
    need(tutti_op_destroy(op), "op_destroy");
}

// ---- pre-multiplied sums of floats that are small ----

struct SmallFloat {
    tutti_dtype dtype;
    int mantissa_bits, bias;
};

// Rounds to nearest even, once. For values that are at least 1 and in range.
uint16_t encode(const SmallFloat& type, double value) {
    int exponent = std::ilogb(value);
    double units = std::nearbyint(std::ldexp(value, type.mantissa_bits - exponent));
    if (units == std::ldexp(2, type.mantissa_bits)) {
        units /= 2;
        ++exponent;
    }
    const auto fraction = static_cast<int>(units) - (1 << type.mantissa_bits);
    return static_cast<uint16_t>((exponent + type.bias) << type.mantissa_bits | fraction);
}
double decode(const SmallFloat& type, uint16_t bits) {
    const int fraction = bits & ((1 << type.mantissa_bits) - 1);
    return std::ldexp((1 << type.mantissa_bits) + fraction,
                      (bits >> type.mantissa_bits) - type.bias - type.mantissa_bits);
}

// Factors of few bits: products and the sums of up to eight of them are exact in fp32, so that what
// comes out does not depend on the order and is rounded once, or is wrong.
double scalar(const SmallFloat& type, int rank) {
    const int steps = 1 << std::min(type.mantissa_bits, 9);
    return 1 + static_cast<double>((rank * 5 + 3) % steps) / steps;
}
// Every rank's runs through all steps, beside different ones of the other ranks'.
double element(const SmallFloat& type, int rank, std::size_t i) {
    const std::size_t steps = std::size_t{1} << type.mantissa_bits;
    const std::size_t step = i * 7 + static_cast<std::size_t>(rank) * (3 + i / steps);
    return 1 + static_cast<double>(step % steps) / static_cast<double>(steps);
}

// rounded: what a library would get that rounds each product and each sum.
double sum_of(const SmallFloat& type, int last, std::size_t i, bool rounded) {
    const auto keep = [&](double v) { return rounded ? decode(type, encode(type, v)) : v; };
    double sum = keep(scalar(type, 0) * element(type, 0, i));
    for (int r = 1; r < last; ++r) sum = keep(sum + keep(scalar(type, r) * element(type, r, i)));
    return sum;
}

// Two levels need several hosts, and one of several ranks.
bool refused_for_hosts() {
    return std::strstr(tutti_last_error(), "on one host.") != nullptr ||
           std::strstr(tutti_last_error(), "has a host of its own.") != nullptr;
}

template <typename T>
void scaled_sums(const Members& here, const SmallFloat& type, tutti_op op) {
    Work<T> work{type.dtype, op, {}, {}};
    work.input = [&](int rank, std::size_t length) {
        std::vector<T> in(length);
        for (std::size_t i = 0; i < length; ++i)
            in[i] = static_cast<T>(encode(type, element(type, rank, i)));
        return in;
    };
    work.result = [&](int last, std::size_t length) {
        std::vector<T> sum(length);
        for (std::size_t i = 0; i < length; ++i)
            sum[i] = static_cast<T>(encode(type, sum_of(type, last, i, false)));
        return sum;
    };
    for (const Form& form : forms())
        for (const std::size_t count : counts) {
            require(run_once(form, here, work, count, nullptr), "tutti's own choice");
            for (const std::string& algorithm : algorithms_of(form))
                require(run_once(form, here, work, count, algorithm.c_str()) ||
                            algorithm == "flat" || refused_for_hosts(),
                        algorithm + " refuses a sum");
        }
}

// Or the above could not tell one rounding from several.
void check_that_rounding_shows(const SmallFloat& type, int ranks) {
    int different = 0;
    for (std::size_t i = 0; i < 1024; ++i)
        different += encode(type, sum_of(type, ranks, i, false)) !=
                     encode(type, sum_of(type, ranks, i, true));
    require(ranks == 1 || different > 0, std::string("the data cannot show a second rounding of ") +
                                             tutti_dtype_name(type.dtype));
}

void scaled_in(tutti_comm* comm) {
    const Members here(comm);
    for (const SmallFloat& type : {SmallFloat{TUTTI_BFLOAT16, 7, 127},
                                   {TUTTI_FLOAT16, 10, 15},
                                   {TUTTI_FLOAT8_E4M3, 3, 7},
                                   {TUTTI_FLOAT8_E5M2, 2, 15}}) {
        check_that_rounding_shows(type, here.ranks);
        const auto mine = static_cast<float>(scalar(type, here.rank));
        tutti_op op = -1;
        need(tutti_op_create_premul_sum(comm, &mine, TUTTI_FLOAT32, &op), "premul_sum");
        if (tutti_dtype_size(type.dtype) == 1)
            scaled_sums<uint8_t>(here, type, op);
        else
            scaled_sums<uint16_t>(here, type, op);
        need(tutti_op_destroy(op), "op_destroy");
    }
}

void scaled(tutti_comm* comm) {
    scaled_in(comm);
}

// In a part of the job the ranks, and with them the scalars, are others.
void scaled_in_parts(tutti_comm* world) {
    tutti_comm* part = nullptr;
    need(tutti_comm_split(world, rank_of % 2, -rank_of, &part), "split");
    scaled_in(part);
    need(tutti_comm_destroy(part), "destroy");
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv,
                    {{"ordered", ordered}, {"scaled", scaled}, {"parts", scaled_in_parts}});
}
