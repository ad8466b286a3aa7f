// The C API's edges: every bad argument is a clear error, and a job of one rank does everything.
#include <cstring>
#include <string>
#include <vector>

#include "capi/one_rank.h"

using namespace capi_test;

TEST_CASE("capi: a process without a launcher is a job of one") {
    const Comm comm;
    REQUIRE(tutti_comm_rank(comm) == 0);
    REQUIRE(tutti_comm_size(comm) == 1);
    const std::vector<float> in = {1, 2, 3};
    std::vector<float> out(3);
    for (tutti_op op : {TUTTI_SUM, TUTTI_MAX, TUTTI_MIN, TUTTI_PROD, TUTTI_AVG}) {
        REQUIRE(tutti_allreduce(comm, in.data(), out.data(), 3, TUTTI_FLOAT32, op) == TUTTI_OK);
        REQUIRE(out == in);
    }
    REQUIRE(tutti_broadcast(comm, out.data(), 3, TUTTI_FLOAT32, 0) == TUTTI_OK);
    REQUIRE(tutti_barrier(comm) == TUTTI_OK);
    REQUIRE(tutti_allreduce(comm, nullptr, nullptr, 0, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
}

TEST_CASE("capi: null pointers are named") {
    const Comm comm;
    float x = 0;
    expect_invalid(tutti_comm_create(nullptr, nullptr), "comm is NULL");
    expect_invalid(tutti_barrier(nullptr), "tutti_barrier: comm is NULL");
    expect_invalid(tutti_allreduce(comm, nullptr, &x, 1, TUTTI_FLOAT32, TUTTI_SUM),
                   "the input is NULL");
    expect_invalid(tutti_allreduce(comm, &x, nullptr, 1, TUTTI_FLOAT32, TUTTI_SUM),
                   "the output is NULL");
    expect_invalid(tutti_broadcast(comm, nullptr, 1, TUTTI_FLOAT32, 0), "NULL but count is 1");
    expect_invalid(tutti_iallreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr),
                   "request is NULL");
    expect_invalid(tutti_config_create(nullptr), "config is NULL");
    expect_invalid(tutti_config_set(nullptr, "rank", "0"), "config is NULL");
    expect_invalid(tutti_plan_start(nullptr, &x, &x, nullptr), "plan is NULL");
    expect_invalid(tutti_request_fd(nullptr, nullptr), "request is NULL");
    REQUIRE(tutti_comm_rank(nullptr) == -1);
    REQUIRE(tutti_comm_destroy(nullptr) == TUTTI_OK);
    REQUIRE(tutti_wait(nullptr, -1) == TUTTI_OK);
    tutti_plan_destroy(nullptr);
    tutti_config_destroy(nullptr);
}

TEST_CASE("capi: dtypes, operators, roots and streams out of range are named with the range") {
    const Comm comm;
    float x = 0;
    expect_invalid(tutti_allreduce(comm, &x, &x, 1, 14, TUTTI_SUM), "14");
    expect_invalid(tutti_allreduce(comm, &x, &x, 1, -1, TUTTI_SUM), "-1");
    expect_invalid(tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, 8), "8");
    expect_invalid(tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_BXOR), "float32");
    expect_invalid(tutti_allreduce(comm, &x, &x, 1, TUTTI_BFLOAT16, TUTTI_BAND), "bfloat16");
    expect_invalid(tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, 1), "root 1 is out of range");
    expect_invalid(tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, -1), "root -1 is out of range");
    expect_invalid(tutti_allreduce(comm, &x, &x, ~size_t{0}, TUTTI_FLOAT32, TUTTI_SUM),
                   "more bytes than");
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = 2;
    tutti_request* request = nullptr;
    expect_invalid(tutti_iallreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request),
                   "ring 2 is out of range");
    REQUIRE(request == nullptr);
}

TEST_CASE("capi: what this build cannot do is said, not ignored") {
    const Comm comm;
    float x = 0;
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.device_stream = &x;
    REQUIRE(tutti_iallreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request) ==
            TUTTI_ERR_UNSUPPORTED);
    REQUIRE(std::strstr(tutti_last_error(), "device stream"));
    opts = TUTTI_CALL_OPTS_INIT;
    opts.algorithm = "magic";
    REQUIRE(tutti_iallreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request) ==
            TUTTI_ERR_UNSUPPORTED);
    REQUIRE(std::strstr(tutti_last_error(), "ring, recursive_doubling"));
    opts = TUTTI_CALL_OPTS_INIT;
    opts.struct_size = 0;
    expect_invalid(tutti_iallreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request),
                   "TUTTI_CALL_OPTS_INIT");
}

TEST_CASE("capi: settings are checked when they are set") {
    tutti_config* config = nullptr;
    REQUIRE(tutti_config_create(&config) == TUTTI_OK);
    expect_invalid(tutti_config_set(config, "colour", "red"),
                   "unknown setting 'colour'. What to do: use one of: rank, size, store");
    expect_invalid(tutti_config_set(config, "nrings", "0"),
                   "'0' is not a whole number from 1 to 16");
    expect_invalid(tutti_config_set(config, "rank", "-1"), "setting 'rank'");
    expect_invalid(
        tutti_config_set(config, "transport", "shm,tpc"),
        "unknown transport 'tpc'. What to do: use a transport that this build has: inproc, shm, "
        "tcp");
    expect_invalid(tutti_config_set(config, "algo", "rink"), "there is no algorithm 'rink'");
    const std::string listed = tutti_last_error();
    CHECK(listed.find(" ring,") != listed.npos);
    CHECK(listed.find(" ring,") == listed.rfind(" ring,"));
    REQUIRE(tutti_config_set(config, "transport", "tcp,shm") == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "algo", "ring") == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "algo", "") == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "nrings", "4") == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "reproducible", "1") == TUTTI_ERR_UNSUPPORTED);
    tutti_store_callbacks none{};
    expect_invalid(tutti_config_set_store(config, &none, nullptr), "struct_size");
    tutti_config_destroy(config);
}

TEST_CASE("capi: what is not changed comes back from float32, and ties go to even") {
    for (tutti_dtype narrow :
         {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT8_E4M3, TUTTI_FLOAT8_E5M2}) {
        std::vector<float> values;
        for (int i = -64; i <= 64; ++i) values.push_back(static_cast<float>(i % 8) / 4.0F);
        std::vector<unsigned char> codes(values.size() * tutti_dtype_size(narrow));
        std::vector<float> back(values.size(), 99);
        REQUIRE(tutti_convert(values.data(), TUTTI_FLOAT32, codes.data(), narrow, values.size()) ==
                TUTTI_OK);
        REQUIRE(tutti_convert(codes.data(), narrow, back.data(), TUTTI_FLOAT32, values.size()) ==
                TUTTI_OK);
        REQUIRE(back == values);
    }
    const float between[2] = {1 + 0x1p-8F, 1 + 3 * 0x1p-8F};  // bfloat16 has 7 bits after the point
    uint16_t rounded[2] = {};
    REQUIRE(tutti_convert(between, TUTTI_FLOAT32, rounded, TUTTI_BFLOAT16, 2) == TUTTI_OK);
    REQUIRE(rounded[0] == 0x3f80);
    REQUIRE(rounded[1] == 0x3f82);
    const int64_t whole[2] = {1, -2};
    int64_t copy[2] = {};
    REQUIRE(tutti_convert(whole, TUTTI_INT64, copy, TUTTI_INT64, 2) == TUTTI_OK);
    REQUIRE(copy[1] == -2);
    REQUIRE(tutti_convert(nullptr, TUTTI_FLOAT32, nullptr, TUTTI_FLOAT16, 0) == TUTTI_OK);
    expect_invalid(tutti_convert(nullptr, TUTTI_FLOAT32, rounded, TUTTI_FLOAT16, 1), "in is NULL");
    expect_invalid(tutti_convert(between, TUTTI_FLOAT32, rounded, 99, 1), "unknown dtype 99");
    REQUIRE(tutti_convert(between, TUTTI_FLOAT32, copy, TUTTI_FLOAT64, 1) == TUTTI_ERR_UNSUPPORTED);
    REQUIRE(std::string(tutti_last_error()).find("from float32 to float64") != std::string::npos);
}

TEST_CASE("capi: names and sizes of everything that has a number") {
    REQUIRE(std::string(tutti_version()) == "0.2.0");
    REQUIRE(tutti_dtype_size(TUTTI_BFLOAT16) == 2);
    REQUIRE(tutti_dtype_size(99) == 0);
    REQUIRE(std::string(tutti_dtype_name(TUTTI_FLOAT8_E4M3)) == "float8_e4m3");
    REQUIRE(tutti_dtype_name(14) == nullptr);
    REQUIRE(std::string(tutti_op_name(TUTTI_AVG)) == "avg");
    REQUIRE(std::string(tutti_algorithm_name("allreduce", 0)) == "ring");
    REQUIRE(tutti_algorithm_name("allreduce", 100) == nullptr);
    REQUIRE(tutti_algorithm_name("teleport", 0) == nullptr);
    REQUIRE(tutti_algorithm_summary("barrier", "dissemination") != nullptr);
    REQUIRE(tutti_algorithm_summary("barrier", "flat") != nullptr);
    REQUIRE(tutti_algorithm_summary("reduce", "flat") == nullptr);
    REQUIRE(std::string(tutti_transport_name(1)) == "shm");
    for (int s = TUTTI_OK; s <= TUTTI_ERR_REVOKED; ++s)
        REQUIRE(std::string(tutti_status_string(static_cast<tutti_status>(s))) != "unknown");
}

TEST_CASE("capi: several communicators live side by side") {
    const Comm a, b, c;
    float x = 1;
    for (tutti_comm* comm : {a.comm, c.comm, b.comm})
        REQUIRE(tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
}
