// Every dtype, operator and size of a tier, on as many ranks as the launcher started: each element
// of each result is compared with what plain arithmetic says.
// usage: tutti-run -n N matrix [some|small|large|huge]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "reduce/reduce.h"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

int rank_of = 0, ranks = 1;
long cases = 0;

void need(tutti_status status, const std::string& what) {
    if (status == TUTTI_OK) return;
    std::fprintf(stderr, "rank %d: %s: %s\n", rank_of, what.c_str(), tutti_last_error());
    std::exit(1);
}

// Element i of a rank's input: few bits, so that no sum, product or maximum here is ever rounded.
int small_value(int rank, std::size_t i, Op op) {
    if (op == Op::prod) return (static_cast<std::size_t>(rank) + i) % 3 == 0 ? 2 : 1;
    return static_cast<int>((static_cast<std::size_t>(rank) * 5 + i * 3) % 4);
}

int expected_value(std::size_t i, Op op) {
    int value = small_value(0, i, op);
    for (int r = 1; r < ranks; ++r) {
        const int v = small_value(r, i, op);
        switch (op) {
            case Op::sum:
            case Op::avg:
                value += v;
                break;
            case Op::max:
                value = std::max(value, v);
                break;
            case Op::min:
                value = std::min(value, v);
                break;
            case Op::prod:
                value *= v;
                break;
            case Op::band:
                value &= v;
                break;
            case Op::bor:
                value |= v;
                break;
            case Op::bxor:
                value ^= v;
                break;
        }
    }
    return value;
}

// Encodes small integers (and their averages in floats) by converting from float64 or int64 through
// the types' definition, independently of the kernels.
void encode(Dtype dtype, double value, std::byte* at) {
    const auto put = [&](auto v) { std::memcpy(at, &v, sizeof v); };
    const auto narrow = [&](int exponent_bits, int mantissa_bits, int bias) -> uint32_t {
        if (value == 0) return 0;
        int exponent = 0;
        const double fraction = std::frexp(value, &exponent);  // value = fraction · 2^exponent
        auto mantissa =
            static_cast<uint32_t>(std::nearbyint(std::ldexp(fraction * 2 - 1, mantissa_bits)));
        auto biased = static_cast<uint32_t>(exponent - 1 + bias);
        biased += mantissa >> mantissa_bits;
        mantissa &= (1u << mantissa_bits) - 1;
        return (biased & ((1u << exponent_bits) - 1)) << mantissa_bits | mantissa;
    };
    switch (dtype) {
        case Dtype::int8:
            return put(static_cast<int8_t>(value));
        case Dtype::uint8:
            return put(static_cast<uint8_t>(value));
        case Dtype::int16:
            return put(static_cast<int16_t>(value));
        case Dtype::uint16:
            return put(static_cast<uint16_t>(value));
        case Dtype::int32:
            return put(static_cast<int32_t>(value));
        case Dtype::uint32:
            return put(static_cast<uint32_t>(value));
        case Dtype::int64:
            return put(static_cast<int64_t>(value));
        case Dtype::uint64:
            return put(static_cast<uint64_t>(value));
        case Dtype::float32:
            return put(static_cast<float>(value));
        case Dtype::float64:
            return put(value);
        case Dtype::float16:
            return put(static_cast<uint16_t>(narrow(5, 10, 15)));
        case Dtype::bfloat16:
            return put(static_cast<uint16_t>(narrow(8, 7, 127)));
        case Dtype::float8_e4m3:
            return put(static_cast<uint8_t>(narrow(4, 3, 7)));
        case Dtype::float8_e5m2:
            return put(static_cast<uint8_t>(narrow(5, 2, 15)));
    }
}

double finished(Dtype dtype, Op op, int sum) {
    if (op != Op::avg) return sum;
    if (!is_float(dtype)) return sum / ranks;
    // The accumulator divides: fp32 for narrow floats, then one rounding in encode().
    return dtype == Dtype::float64
               ? static_cast<double>(sum) / ranks
               : static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks));
}

// Every twelfth element repeats, so expectations are computed for one period and copied.
constexpr std::size_t period = 12;

void compare(const std::vector<std::byte>& got, const std::vector<std::byte>& want,
             std::size_t count, std::size_t bytes, const std::string& what) {
    for (std::size_t i = 0; i < count; i += period) {
        const std::size_t here = std::min(period, count - i);
        if (std::memcmp(&got[i * bytes], want.data(), here * bytes) == 0) continue;
        std::size_t wrong = i;
        while (std::memcmp(&got[wrong * bytes], &want[wrong % period * bytes], bytes) == 0) ++wrong;
        std::fprintf(stderr, "rank %d: %s: element %zu is wrong\n", rank_of, what.c_str(), wrong);
        std::exit(1);
    }
}

void fill(std::vector<std::byte>& data, std::size_t count, std::size_t bytes,
          const std::vector<std::byte>& pattern) {
    for (std::size_t i = 0; i < count; i += period)
        std::memcpy(&data[i * bytes], pattern.data(), std::min(period, count - i) * bytes);
}

void allreduce(tutti_comm* comm, Dtype dtype, Op op, std::size_t count, bool in_place) {
    const std::size_t bytes = dtype_bytes(dtype);
    std::vector<std::byte> mine(period * bytes), want(period * bytes);
    for (std::size_t i = 0; i < period; ++i) {
        encode(dtype, small_value(rank_of, i, op), &mine[i * bytes]);
        encode(dtype, finished(dtype, op, expected_value(i, op)), &want[i * bytes]);
    }
    const std::string what = fmt::format("allreduce {} {} count {}{}", dtype_name(dtype),
                                         op_name(op), count, in_place ? " in place" : "");
    std::vector<std::byte> in(count * bytes + 1);
    std::vector<std::byte> out(in_place ? 0 : in.size(), std::byte{0xee});
    fill(in, count, bytes, mine);
    std::byte* target = in_place ? in.data() : out.data();
    need(tutti_allreduce(comm, in.data(), target, count, static_cast<tutti_dtype>(dtype),
                         static_cast<tutti_op>(op)),
         what);
    compare(in_place ? in : out, want, count, bytes, what);
    if (!in_place) {
        compare(in, mine, count, bytes, what + " (the input was changed)");
        if (out.back() != std::byte{0xee}) {
            std::fprintf(stderr, "rank %d: %s: wrote past the end\n", rank_of, what.c_str());
            std::exit(1);
        }
    }
    ++cases;
}

void broadcast(tutti_comm* comm, std::size_t count, int root) {
    std::vector<uint16_t> data(count);
    for (std::size_t i = 0; i < count; ++i)
        data[i] = static_cast<uint16_t>(i * 7 + static_cast<std::size_t>(rank_of));
    const std::string what = fmt::format("broadcast count {} root {}", count, root);
    need(tutti_broadcast(comm, data.data(), count, TUTTI_UINT16, root), what);
    for (std::size_t i = 0; i < count; ++i)
        if (data[i] != static_cast<uint16_t>(i * 7 + static_cast<std::size_t>(root))) {
            std::fprintf(stderr, "rank %d: %s: element %zu is wrong\n", rank_of, what.c_str(), i);
            std::exit(1);
        }
    ++cases;
}

bool makes_sense(Dtype dtype, Op op) {
    return Reducer::make(dtype, op).has_value();
}

// With `some`, each pair of dtype and operator runs two of the sizes, each in one of the two forms.
void small_tier(tutti_comm* comm, std::size_t max_bytes, bool some) {
    constexpr std::size_t counts[] = {0, 1, 2, 7, 63, 1000, 8191, 33001};
    std::size_t pairs = 0;
    for (int d = 0; d < dtype_count; ++d)
        for (int o = 0; o < op_count; ++o) {
            const auto dtype = static_cast<Dtype>(d);
            const auto op = static_cast<Op>(o);
            if (!makes_sense(dtype, op)) continue;
            const std::size_t pair = pairs++;
            if (some) {
                allreduce(comm, dtype, op, counts[pair % 4], pair % 8 < 4);
                allreduce(comm, dtype, op, counts[4 + pair % 4], pair % 8 >= 4);
                continue;
            }
            for (std::size_t count : counts)
                for (bool in_place : {false, true}) allreduce(comm, dtype, op, count, in_place);
        }
    // Around the tiles of a ring in shared memory (128 KiB) and over TCP (256 KiB), up to three.
    for (std::size_t message : {131072ul, 262144ul})
        for (std::size_t tiles : {1ul, 2ul, 3ul})
            for (std::size_t off : {0ul, 1ul, 2ul}) {
                const std::size_t bytes = message * static_cast<std::size_t>(ranks) * tiles;
                if (bytes > max_bytes) continue;
                for (Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::int8})
                    allreduce(comm, dtype, Op::sum, bytes / dtype_bytes(dtype) + off - 1, off == 0);
            }
    for (int root = 0; root < ranks; ++root)
        for (std::size_t count : {0ul, 1ul, 15ul, 5000ul, 40'000ul, 200'003ul})
            broadcast(comm, count, root);
    for (int i = 0; i < 100; ++i) need(tutti_barrier(comm), "barrier");
}

void large_tier(tutti_comm* comm) {
    const std::size_t bytes = (64u << 20) + 4096;
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::int8})
        for (bool in_place : {true, false})
            allreduce(comm, dtype, Op::sum, bytes / dtype_bytes(dtype) + 3, in_place);
    broadcast(comm, (70u << 20) / 2 + 1, ranks - 1);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string tier = argc > 1 ? argv[1] : "small";
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(nullptr, &comm), "create");
    rank_of = tutti_comm_rank(comm);
    ranks = tutti_comm_size(comm);
    const char* limit = std::getenv("TUTTI_TEST_MAX_BYTES");
    const std::size_t max_bytes = limit ? std::strtoull(limit, nullptr, 10) : std::size_t{8} << 20;
    if (tier == "some" || tier == "small") small_tier(comm, max_bytes, tier == "some");
    if (tier == "large") large_tier(comm);
    if (tier == "huge") allreduce(comm, Dtype::uint8, Op::max, (std::size_t{4} << 30) + 5, true);
    need(tutti_comm_destroy(comm), "destroy");
    if (rank_of == 0)
        std::printf("matrix: %s tier, %d ranks, %ld cases right\n", tier.c_str(), ranks, cases);
    return 0;
}
