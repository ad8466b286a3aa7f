// The program's own operators at the C API's edges: their names, and the errors of bad arguments.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "capi/one_rank.h"

using namespace capi_test;

namespace {

// Not called with one rank; its address is what the operators are made of.
void keep_first(const void*, const void*, void*, size_t, tutti_dtype, void*) {}

// The sum of bytes that are counted: a function that sees its user data and its dtype.
void add_bytes(const void* first, const void* second, void* result, size_t count, tutti_dtype dtype,
               void* user) {
    REQUIRE(dtype == TUTTI_UINT8);
    *static_cast<size_t*>(user) += count;
    for (size_t i = 0; i < count; ++i)
        static_cast<uint8_t*>(result)[i] = static_cast<uint8_t>(
            static_cast<const uint8_t*>(first)[i] + static_cast<const uint8_t*>(second)[i]);
}

tutti_op_spec spec_of(size_t item_elements = 1) {
    tutti_op_spec spec = TUTTI_OP_SPEC_INIT;
    spec.combine = keep_first;
    spec.item_elements = item_elements;
    return spec;
}

}  // namespace

TEST_CASE("capi operators: a specification that makes no sense is refused by its field's name") {
    tutti_op op = -1;
    tutti_op_spec spec = spec_of();
    expect_invalid(tutti_op_create(nullptr, &op), "tutti_op_create: spec is NULL");
    expect_invalid(tutti_op_create(&spec, nullptr), "tutti_op_create: op is NULL");
    spec.combine = nullptr;
    expect_invalid(tutti_op_create(&spec, &op), "tutti_op_create: spec.combine is NULL");
    spec = spec_of();
    spec.struct_size = 0;
    expect_invalid(tutti_op_create(&spec, &op), "initialise the spec with TUTTI_OP_SPEC_INIT");
    spec = spec_of(0);
    expect_invalid(tutti_op_create(&spec, &op),
                   "spec.item_elements is 0, which is out of range. What to do: give 1 to 64");
    spec = spec_of(65);
    expect_invalid(tutti_op_create(&spec, &op),
                   "spec.item_elements is 65, which is out of range. What to do: give 1 to 64");
    REQUIRE(op == -1);
}

TEST_CASE("capi operators: a pre-multiplied sum needs a communicator, a scalar and its dtype") {
    const Comm comm;
    const float two = 2;
    tutti_op op = -1;
    const char* const function = "tutti_op_create_premul_sum: ";
    expect_invalid(tutti_op_create_premul_sum(nullptr, &two, TUTTI_FLOAT32, &op),
                   std::string(function) + "comm is NULL");
    expect_invalid(tutti_op_create_premul_sum(comm, nullptr, TUTTI_FLOAT32, &op),
                   std::string(function) + "scalar is NULL");
    expect_invalid(tutti_op_create_premul_sum(comm, &two, TUTTI_FLOAT32, nullptr),
                   std::string(function) + "op is NULL");
    for (const tutti_dtype dtype : {-1, 14})
        expect_invalid(tutti_op_create_premul_sum(comm, &two, dtype, &op),
                       "rank 0: " + std::string(function) + "unknown dtype " +
                           std::to_string(dtype) + ". What to do: give a dtype from 0 to 13");
    REQUIRE(op == -1);
}

TEST_CASE("capi operators: handles have names until they are destroyed") {
    const Comm comm;
    const tutti_op_spec spec = spec_of();
    const double half = 0.5;
    tutti_op own = -1, scaled = -1;
    REQUIRE(tutti_op_create(&spec, &own) == TUTTI_OK);
    REQUIRE(tutti_op_create_premul_sum(comm, &half, TUTTI_FLOAT64, &scaled) == TUTTI_OK);
    REQUIRE(own >= TUTTI_OP_USER_FIRST);
    REQUIRE(scaled > own);
    REQUIRE(std::string(tutti_op_name(own)) == "user operator");
    REQUIRE(std::string(tutti_op_name(scaled)) == "pre-multiplied sum");
    REQUIRE(std::string(tutti_op_name(TUTTI_SUM)) == "sum");
    for (const tutti_op none : {-1, 8, 1023, scaled + 1}) REQUIRE(tutti_op_name(none) == nullptr);
    REQUIRE(tutti_op_destroy(own) == TUTTI_OK);
    REQUIRE(tutti_op_name(own) == nullptr);
    REQUIRE(tutti_op_destroy(scaled) == TUTTI_OK);
}

TEST_CASE(
    "capi operators: a call with a handle that is none says rank, call, value and what to do") {
    const Comm comm;
    const tutti_op_spec spec = spec_of();
    tutti_op op = -1;
    REQUIRE(tutti_op_create(&spec, &op) == TUTTI_OK);
    float x = 1;
    // Bound once, so that a cached plan is there when the handle is gone.
    REQUIRE(tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, op) == TUTTI_OK);
    REQUIRE(tutti_op_destroy(op) == TUTTI_OK);
    const std::string gone = "operator " + std::to_string(op) + " was destroyed";
    const std::string cure = ". What to do: call tutti_op_destroy after the operator's last use";
    expect_invalid(tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, op),
                   "rank 0: allreduce: " + gone + cure);
    expect_invalid(tutti_scan(comm, &x, &x, 1, TUTTI_FLOAT32, op), "rank 0: scan: " + gone);
    const size_t counts[] = {1};
    expect_invalid(tutti_reduce_scatterv(comm, &x, &x, counts, TUTTI_FLOAT32, op),
                   "rank 0: reduce_scatterv: " + gone);
    tutti_plan* plan = nullptr;
    expect_invalid(tutti_plan_allreduce(comm, 1, TUTTI_FLOAT32, op, nullptr, &plan), gone);
    REQUIRE(plan == nullptr);
    expect_invalid(
        tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, 1 << 30),
        "unknown operator 1073741824. What to do: give a built-in operator (0 to 7) or a handle");
    expect_invalid(tutti_op_destroy(op), gone);
    expect_invalid(tutti_op_destroy(1 << 30), "unknown operator 1073741824");
    expect_invalid(tutti_op_destroy(-1), "unknown operator -1");
    expect_invalid(tutti_op_destroy(TUTTI_AVG), "avg is built in");
}

TEST_CASE("capi operators: plans keep their operator when its handle is destroyed") {
    const Comm comm;
    size_t seen = 0;
    tutti_op_spec spec = spec_of();
    spec.combine = add_bytes;
    spec.user = &seen;
    tutti_op op = -1;
    REQUIRE(tutti_op_create(&spec, &op) == TUTTI_OK);
    tutti_plan* plan = nullptr;
    REQUIRE(tutti_plan_allreduce_multi(comm, 2, 3, TUTTI_UINT8, op, nullptr, &plan) == TUTTI_OK);
    REQUIRE(tutti_op_destroy(op) == TUTTI_OK);
    const std::array<uint8_t, 3> a{1, 2, 3}, b{10, 20, 250};
    std::array<uint8_t, 3> out{};
    const void* ins[] = {a.data(), b.data()};
    REQUIRE(tutti_plan_run(plan, ins, out.data()) == TUTTI_OK);
    REQUIRE(out == std::array<uint8_t, 3>{11, 22, 253});
    REQUIRE(seen == 3);
    tutti_plan_destroy(plan);
}

TEST_CASE("capi operators: an operator that does not go with the data is refused with both") {
    const Comm comm, other;
    const float third = 1.0f / 3;
    tutti_op by_float = -1, pairs = -1, wide = -1;
    REQUIRE(tutti_op_create_premul_sum(comm, &third, TUTTI_FLOAT32, &by_float) == TUTTI_OK);
    tutti_op_spec spec = spec_of(2);
    REQUIRE(tutti_op_create(&spec, &pairs) == TUTTI_OK);
    spec = spec_of(16);
    REQUIRE(tutti_op_create(&spec, &wide) == TUTTI_OK);
    std::array<double, 48> data{};
    void* const x = data.data();
    expect_invalid(
        tutti_allreduce(comm, x, x, 1, TUTTI_FLOAT64, by_float),
        "rank 0: allreduce: the pre-multiplied sum's scalar is float32, but the data is float64");
    expect_invalid(tutti_allreduce(comm, x, x, 1, TUTTI_INT32, by_float), "the data is int32");
    expect_invalid(tutti_allreduce(other, x, x, 1, TUTTI_FLOAT32, by_float),
                   "rank 0: allreduce: the pre-multiplied sum was made for another communicator");
    expect_invalid(tutti_exscan(comm, x, x, 3, TUTTI_FLOAT32, pairs),
                   "rank 0: exscan: the operator works on items of 2 elements, and 3 is not");
    expect_invalid(tutti_allreduce(comm, x, x, 16, TUTTI_FLOAT64, wide),
                   "items of 16 elements of float64 have 128 bytes, which is out of range. What to "
                   "do: give items of 1 to 64 bytes");
    const size_t odd[] = {3};
    expect_invalid(tutti_reduce_scatterv(comm, x, x, odd, TUTTI_FLOAT32, pairs),
                   "rank 0: reduce_scatterv: the operator works on items of 2");
    for (const tutti_op op : {by_float, pairs, wide}) REQUIRE(tutti_op_destroy(op) == TUTTI_OK);
}

TEST_CASE("capi operators: several inputs need a list of 1 to 4096 that has no gaps") {
    const Comm comm;
    std::array<int32_t, 8> x{};
    const void* ins[] = {x.data(), nullptr};
    tutti_request* request = nullptr;
    tutti_plan* plan = nullptr;
    const auto multi = [&](tutti_comm* c, const void* const* list, int nin) {
        return tutti_allreduce_multi(c, list, nin, x.data(), 4, TUTTI_INT32, TUTTI_SUM);
    };
    const auto imulti = [&](const void* const* list, int nin, tutti_request** r) {
        return tutti_iallreduce_multi(comm, list, nin, x.data(), 4, TUTTI_INT32, TUTTI_SUM, nullptr,
                                      r);
    };
    const auto bind = [&](int nin, tutti_dtype dtype, tutti_plan** p) {
        return tutti_plan_allreduce_multi(comm, nin, 4, dtype, TUTTI_SUM, nullptr, p);
    };
    expect_invalid(multi(nullptr, ins, 1), "tutti_allreduce_multi: comm is NULL");
    expect_invalid(multi(comm, nullptr, 1), "tutti_allreduce_multi: ins is NULL");
    for (const int nin : {0, -1, 4097}) {
        const std::string words = "multi: nin is " + std::to_string(nin) +
                                  ", which is out of range. What to do: give 1 to 4096";
        expect_invalid(multi(comm, ins, nin), "rank 0: tutti_allreduce_" + words);
        expect_invalid(imulti(ins, nin, &request), "rank 0: tutti_iallreduce_" + words);
        expect_invalid(bind(nin, TUTTI_INT32, &plan), "rank 0: tutti_plan_allreduce_" + words);
    }
    expect_invalid(multi(comm, ins, 2),
                   "rank 0: tutti_allreduce_multi: ins[1] is NULL but count is 4");
    expect_invalid(imulti(ins, 2, &request), "rank 0: tutti_iallreduce_multi: ins[1] is NULL");
    expect_invalid(imulti(ins, 1, nullptr), "tutti_iallreduce_multi: request is NULL");
    expect_invalid(bind(1, TUTTI_INT32, nullptr), "tutti_plan_allreduce_multi: plan is NULL");
    expect_invalid(bind(1, 77, &plan), "rank 0: allreduce_multi: unknown dtype 77");
    expect_invalid(tutti_allreduce_multi(comm, ins, 1, x.data() + 1, 4, TUTTI_INT32, TUTTI_SUM),
                   "rank 0: tutti_allreduce_multi: ins[0]: the input (16 bytes) and the output (16 "
                   "bytes) overlap");
    REQUIRE(request == nullptr);
    REQUIRE(plan == nullptr);
    REQUIRE(bind(2, TUTTI_INT32, &plan) == TUTTI_OK);
    expect_invalid(tutti_plan_run(plan, nullptr, x.data()), "tutti_plan_run: ins is NULL");
    expect_invalid(tutti_plan_start(plan, ins, x.data(), &request),
                   "rank 0: tutti_plan_start: ins[1] is NULL");
    tutti_plan_destroy(plan);
}
