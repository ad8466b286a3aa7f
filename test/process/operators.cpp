// Operators of the program's own through the C API: functions, pre-multiplied sums, several inputs.
// usage: tutti-run -n N operators CASE
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "process/rank.h"

using namespace rank_test;

namespace {

const std::size_t counts[] = {0, 1, 7, 1000, 60'000};

template <typename T>
void expect(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
    if (want.empty() || std::memcmp(got.data(), want.data(), want.size() * sizeof(T)) == 0) return;
    give_up(what + " of " + std::to_string(want.size()) + " elements is wrong");
}

// 2 × 2 matrices of uint64: products do not commute, and wrap.
using Matrices = std::vector<uint64_t>;
void multiply(const void* first, const void* second, void* result, std::size_t count,
              tutti_dtype dtype, void* user) {
    if (user != &rank_of || dtype != TUTTI_UINT64 || count % 4 != 0) std::abort();
    if (reinterpret_cast<std::uintptr_t>(result) % 8 != 0) std::abort();
    const auto *a = static_cast<const uint64_t*>(first), *b = static_cast<const uint64_t*>(second);
    auto* out = static_cast<uint64_t*>(result);
    for (std::size_t i = 0; i < count; i += 4) {
        const uint64_t product[4] = {
            a[i] * b[i] + a[i + 1] * b[i + 2], a[i] * b[i + 1] + a[i + 1] * b[i + 3],
            a[i + 2] * b[i] + a[i + 3] * b[i + 2], a[i + 2] * b[i + 1] + a[i + 3] * b[i + 3]};
        std::memcpy(out + i, product, sizeof product);
    }
}

Matrices matrices(int rank, std::size_t items, int part = 0) {
    Matrices m(items * 4);
    for (std::size_t i = 0; i < m.size(); ++i)
        m[i] = 1 + i % 97 * 3 + static_cast<uint64_t>(rank) * 5 + static_cast<uint64_t>(part) * 11;
    return m;
}
Matrices product(int first, int last, std::size_t items, int parts = 1) {
    Matrices result;
    for (int r = first; r < last; ++r)
        for (int part = 0; part < parts; ++part) {
            const Matrices next = matrices(r, items, part);
            if (result.empty())
                result = next;
            else
                multiply(result.data(), next.data(), result.data(), result.size(), TUTTI_UINT64,
                         &rank_of);
        }
    return result;
}
tutti_op make_product() {
    tutti_op_spec spec = TUTTI_OP_SPEC_INIT;
    spec.combine = multiply;
    spec.user = &rank_of;
    spec.commutative = 0;
    spec.item_elements = 4;
    tutti_op op = -1;
    need(tutti_op_create(&spec, &op), "op_create");
    return op;
}

void products(tutti_comm* comm, tutti_op op, std::size_t items) {
    const std::size_t n = items * 4;
    const Matrices mine = matrices(rank_of, items), all = product(0, ranks, items);
    Matrices out(n);
    need(tutti_allreduce(comm, mine.data(), out.data(), n, TUTTI_UINT64, op), "allreduce");
    expect(out, all, "allreduce");
    out = mine;
    need(tutti_allreduce(comm, out.data(), out.data(), n, TUTTI_UINT64, op), "allreduce");
    expect(out, all, "allreduce in place");
    for (int root = 0; root < ranks; ++root) {
        need(tutti_reduce(comm, mine.data(), out.data(), n, TUTTI_UINT64, op, root), "reduce");
        if (rank_of == root) expect(out, all, "reduce");
    }
    need(tutti_scan(comm, mine.data(), out.data(), n, TUTTI_UINT64, op), "scan");
    expect(out, product(0, rank_of + 1, items), "scan");
    out.assign(n, 9);
    need(tutti_exscan(comm, mine.data(), out.data(), n, TUTTI_UINT64, op), "exscan");
    expect(out, rank_of == 0 ? Matrices(n, 9) : product(0, rank_of, items), "exscan");
    const std::size_t row_items = items * static_cast<std::size_t>(ranks);
    const Matrices wide = matrices(rank_of, row_items), of_all = product(0, ranks, row_items);
    need(tutti_reduce_scatter(comm, wide.data(), out.data(), n, TUTTI_UINT64, op), "scatter");
    const auto own = of_all.begin() + static_cast<std::ptrdiff_t>(n) * rank_of;
    expect(out, Matrices(own, own + static_cast<std::ptrdiff_t>(n)), "reduce_scatter");
    const std::vector<std::size_t> lengths(static_cast<std::size_t>(ranks), n);
    need(tutti_reduce_scatterv(comm, wide.data(), out.data(), lengths.data(), TUTTI_UINT64, op),
         "reduce_scatterv");
    expect(out, Matrices(own, own + static_cast<std::ptrdiff_t>(n)), "reduce_scatterv");
}

void function(tutti_comm* comm) {
    const tutti_op op = make_product();
    for (const std::size_t items : counts) products(comm, op, items);
    uint64_t data[8] = {};
    expect_error(tutti_allreduce(comm, data, data, 6, TUTTI_UINT64, op), TUTTI_ERR_INVALID,
                 "6 is not a multiple of 4");
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.algorithm = "ring";
    tutti_request* request = nullptr;
    expect_error(tutti_iallreduce(comm, data, data, 4, TUTTI_UINT64, op, &opts, &request),
                 TUTTI_ERR_UNSUPPORTED,
                 "not commutative. What to do: use one of recursive_doubling");
    if (ranks > 1) {
        // Ranks that mean different operators are told; in any call, so the above must be over.
        need(tutti_barrier(comm), "barrier");
        const tutti_op other = make_product();
        uint64_t one[4] = {1, 1, 1, 1};
        tutti_status status =
            tutti_allreduce(comm, one, one, 4, TUTTI_UINT64, rank_of == 0 ? op : other);
        for (int i = 0; i < 3 && status == TUTTI_OK; ++i) status = tutti_barrier(comm);
        expect_error(status, TUTTI_ERR_MISMATCH, "user operator 2");
        products(comm, other, 10);
        need(tutti_op_destroy(other), "op_destroy");
    }
    need(tutti_op_destroy(op), "op_destroy");
    expect_error(tutti_allreduce(comm, data, data, 4, TUTTI_UINT64, op), TUTTI_ERR_INVALID,
                 "was destroyed");
    expect_error(tutti_op_destroy(op), TUTTI_ERR_INVALID, "was destroyed");
    expect_error(tutti_op_destroy(TUTTI_SUM), TUTTI_ERR_INVALID, "built in");
    expect_error(tutti_allreduce(comm, data, data, 4, TUTTI_UINT64, 5000), TUTTI_ERR_INVALID,
                 "unknown operator 5000");
    expect_error(tutti_scan(comm, data, data, 4, TUTTI_UINT64, TUTTI_AVG), TUTTI_ERR_INVALID,
                 "avg is not defined");
}

uint16_t bf16(float value) {  // of values that fit
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void premul(tutti_comm* comm) {
    const float third = 1.0f / static_cast<float>(rank_of + 3);
    const int32_t factor = rank_of == 0 ? INT32_MAX : rank_of + 2;
    tutti_op by_float = -1, by_int = -1;
    need(tutti_op_create_premul_sum(comm, &third, TUTTI_FLOAT32, &by_float), "premul");
    need(tutti_op_create_premul_sum(comm, &factor, TUTTI_INT32, &by_int), "premul");
    for (const std::size_t n : counts) {
        std::vector<int32_t> ints(n), int_sum(n), got(n);
        std::vector<uint16_t> halves(n), half_sum(n);
        for (std::size_t i = 0; i < n; ++i) {
            const auto at = static_cast<int>(i % 100);
            ints[i] = at + rank_of;
            halves[i] = bf16(static_cast<float>(at + rank_of));
            uint32_t sum = 0;
            float exact = 0;
            for (int r = 0; r < ranks; ++r) {
                sum += static_cast<uint32_t>(at + r) * (r == 0 ? INT32_MAX : r + 2u);
                exact += static_cast<float>(at + r) * (1.0f / static_cast<float>(r + 3));
            }
            int_sum[i] = static_cast<int32_t>(sum);
            half_sum[i] = bf16(exact);
        }
        need(tutti_allreduce(comm, ints.data(), got.data(), n, TUTTI_INT32, by_int), "int32");
        expect(got, int_sum, "premul of int32");
        std::vector<uint16_t> half_got(n);
        need(tutti_allreduce(comm, halves.data(), half_got.data(), n, TUTTI_BFLOAT16, by_float),
             "bf16");
        // Another order of fp32 additions may round a tie's neighbour differently: one step.
        for (std::size_t i = 0; i < n; ++i)
            if (std::abs(half_got[i] - half_sum[i]) > 1) give_up("premul of bfloat16");
        need(tutti_reduce(comm, ints.data(), got.data(), n, TUTTI_INT32, by_int, ranks - 1), "r");
        if (rank_of == ranks - 1) expect(got, int_sum, "premul in a reduce");
    }
    double wrong = 0;
    expect_error(tutti_allreduce(comm, &wrong, &wrong, 1, TUTTI_FLOAT64, by_float),
                 TUTTI_ERR_INVALID, "with float32 for data that are floats of 16");
    tutti_comm* copy = nullptr;
    need(tutti_comm_dup(comm, &copy), "dup");
    float x = 1;
    expect_error(tutti_allreduce(copy, &x, &x, 1, TUTTI_FLOAT32, by_float), TUTTI_ERR_INVALID,
                 "another communicator");
    need(tutti_comm_destroy(copy), "destroy");
}

std::size_t resident_mib() {
    std::size_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * 4096 >> 20;
}

// Each bound with 8 MiB to prepare its input in, for an operator or a length that never comes back.
void fresh(tutti_comm* comm) {
    constexpr std::size_t n = 2 << 20;
    constexpr int times = 40;
    std::vector<uint16_t> in(n, bf16(1)), out(n);
    const void* const inputs[] = {in.data(), in.data()};
    const std::size_t before = resident_mib();
    for (int i = 0; i < times; ++i) {
        const float factor = 2;
        tutti_op twice = -1;
        need(tutti_op_create_premul_sum(comm, &factor, TUTTI_FLOAT32, &twice), "premul");
        need(tutti_allreduce(comm, in.data(), out.data(), n, TUTTI_BFLOAT16, twice), "allreduce");
        need(tutti_op_destroy(twice), "destroy");
        require(out[n - 1] == bf16(static_cast<float>(2 * ranks)), "a sum of doubles is wrong");
        const std::size_t fewer = n - static_cast<std::size_t>(i);
        need(tutti_allreduce_multi(comm, inputs, 2, out.data(), fewer, TUTTI_BFLOAT16, TUTTI_SUM));
    }
    // Two streams' inputs, the channels and the results.
    if (resident_mib() > before + 100) give_up("prepared inputs are kept for calls long over");
}

// Other inputs each time, into an input too; the list is the plan's only while it is started.
void multi_plan(tutti_comm* comm, std::size_t items, tutti_op op) {
    const std::size_t n = items * 4;
    tutti_plan* plan = nullptr;
    need(tutti_plan_allreduce_multi(comm, 2, n, TUTTI_UINT64, op, nullptr, &plan), "plan");
    for (int part = 0; part < 3; ++part) {
        const Matrices a = matrices(rank_of, items, 0);
        Matrices b = matrices(rank_of, items, 1), c(n);
        const Matrices want = product(0, ranks, items, 2);
        const void* ins[] = {a.data(), b.data()};
        tutti_request* request = nullptr;
        need(tutti_plan_start(plan, ins, c.data(), &request), "plan_start");
        std::memset(static_cast<void*>(ins), 0, sizeof ins);
        need(tutti_wait(&request, -1), "wait");
        expect(c, want, "plan of several inputs");
        const void* again[] = {a.data(), b.data()};
        need(tutti_plan_run(plan, again, b.data()), "plan_run");
        expect(b, want, "plan of several inputs, into an input");
    }
    tutti_plan_destroy(plan);
}

// The inputs are added before they are multiplied, and the product is not rounded before the sum.
void multi_scaled(tutti_comm* comm, std::size_t n) {
    const float mine = rank_of % 2 == 0 ? 0.5f : 2.0f;
    tutti_op op = -1;
    need(tutti_op_create_premul_sum(comm, &mine, TUTTI_FLOAT32, &op), "premul");
    const std::vector<uint16_t> large(n, bf16(512)), two(n, bf16(2));
    std::vector<uint16_t> out(n);
    const void* ins[] = {large.data(), two.data(), two.data()};  // 514 is no bfloat16
    float want = 0;
    for (int r = 0; r < ranks; ++r) want += 516 * (r % 2 == 0 ? 0.5f : 2.0f);
    tutti_request* request = nullptr;
    need(tutti_iallreduce_multi(comm, ins, 3, out.data(), n, TUTTI_BFLOAT16, op, nullptr, &request),
         "imulti");
    need(tutti_wait(&request, -1), "wait");
    expect(out, std::vector<uint16_t>(n, bf16(want)), "scaled sum of several inputs");
    need(tutti_op_destroy(op), "op_destroy");
}

void multi(tutti_comm* comm) {
    const tutti_op op = make_product();
    for (const std::size_t items : counts) {
        const std::size_t n = items * 4;
        const Matrices a = matrices(rank_of, items, 0), b = matrices(rank_of, items, 1);
        Matrices c = matrices(rank_of, items, 2);
        const void* ins[] = {a.data(), b.data(), c.data()};
        const Matrices want = product(0, ranks, items, 3);
        need(tutti_allreduce_multi(comm, ins, 3, c.data(), n, TUTTI_UINT64, op), "multi");
        expect(c, want, "multi, into an input");
        // One and a half of a bfloat16's last place: lost if the inputs were rounded on the way.
        const std::vector<uint16_t> large(n, bf16(256)), one(n, bf16(1));
        std::vector<uint16_t> out(n);
        const void* small[] = {large.data(), one.data(), one.data(), one.data(), one.data()};
        tutti_request* request = nullptr;
        need(tutti_iallreduce_multi(comm, small, 5, out.data(), n, TUTTI_BFLOAT16, TUTTI_SUM,
                                    nullptr, &request),
             "imulti");
        std::memset(static_cast<void*>(small), 0, sizeof small);  // the list was copied
        need(tutti_wait(&request, -1), "wait");
        expect(out, std::vector<uint16_t>(n, bf16(260.0f * static_cast<float>(ranks))), "bf16");
        std::vector<int32_t> twos(n, 2), fours(n, 4), mean(n);
        const void* both[] = {twos.data(), fours.data()};
        need(tutti_allreduce_multi(comm, both, 2, mean.data(), n, TUTTI_INT32, TUTTI_AVG), "avg");
        expect(mean, std::vector<int32_t>(n, 3), "the average of all inputs");
        // As many inputs as this rank likes.
        const int nin = 1 + rank_of % 2;
        need(tutti_allreduce_multi(comm, both, nin, mean.data(), n, TUTTI_INT32, TUTTI_MAX), "max");
        expect(mean, std::vector<int32_t>(n, ranks > 1 ? 4 : 2), "max");
        multi_plan(comm, items, op);
        multi_scaled(comm, n);
    }
    int32_t x[8] = {};
    const void* ins[] = {x, nullptr};
    expect_error(tutti_allreduce_multi(comm, ins, 0, x, 4, TUTTI_INT32, TUTTI_SUM),
                 TUTTI_ERR_INVALID, "nin is 0");
    expect_error(tutti_allreduce_multi(comm, ins, 2, x, 4, TUTTI_INT32, TUTTI_SUM),
                 TUTTI_ERR_INVALID, "ins[1] is NULL");
    expect_error(tutti_allreduce_multi(comm, ins, 1, x + 1, 4, TUTTI_INT32, TUTTI_SUM),
                 TUTTI_ERR_INVALID, "overlap");
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(
        argc, argv,
        {{"function", function}, {"premul", premul}, {"multi", multi}, {"fresh", fresh}});
}
