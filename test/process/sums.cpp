// Sums, products and averages of floats that must be rounded; every rank prints a digest of the
// bits.
// usage: tutti-run -n 2 sums
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "base/hash.h"
#include "process/rank.h"

using namespace rank_test;

namespace {

struct Format {
    tutti_dtype dtype;
    int exponent_bits, mantissa_bits;
};
constexpr Format formats[] = {{TUTTI_FLOAT32, 8, 23},    {TUTTI_FLOAT64, 11, 52},
                              {TUTTI_FLOAT16, 5, 10},    {TUTTI_BFLOAT16, 8, 7},
                              {TUTTI_FLOAT8_E4M3, 4, 3}, {TUTTI_FLOAT8_E5M2, 5, 2}};
constexpr std::size_t counts[] = {1, 1000, 300'000};

// Numbers of either sign, from 1/8 up to 2.
std::vector<unsigned char> numbers(const Format& format, std::size_t count) {
    const std::size_t bytes = tutti_dtype_size(format.dtype);
    const int sign = format.exponent_bits + format.mantissa_bits;
    const uint64_t one = (uint64_t{1} << (format.exponent_bits - 1)) - 1;
    std::mt19937_64 random(static_cast<uint64_t>(format.dtype * 100 + rank_of));
    std::vector<unsigned char> out(count * bytes);
    for (std::size_t i = 0; i < count; ++i) {
        const uint64_t draw = random(), fraction = (uint64_t{1} << format.mantissa_bits) - 1;
        const uint64_t bits = (draw >> 63) << sign |
                              (one - (draw >> 61) % 4) << format.mantissa_bits | (draw & fraction);
        std::memcpy(out.data() + i * bytes, &bits, bytes);
    }
    return out;
}

void print_digest(tutti_comm* comm) {
    uint64_t digest = tutti::hash_basis;
    for (const Format& format : formats)
        for (const std::size_t count : counts)
            for (const tutti_op op : {TUTTI_SUM, TUTTI_PROD, TUTTI_AVG}) {
                auto data = numbers(format, count);
                need(tutti_allreduce(comm, data.data(), data.data(), count, format.dtype, op));
                for (const unsigned char byte : data) digest = tutti::mix_hash(digest, byte);
            }
    std::printf("digest %016" PRIx64 "\n", digest);
}

}  // namespace

int main() {
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(nullptr, &comm), "create");
    rank_of = tutti_comm_rank(comm);
    print_digest(comm);
    need(tutti_comm_destroy(comm), "destroy");
    return 0;
}
