// The C interface of a library that was built without GPU support.
#include <string>

#include "support/catch.h"
#include "tutti/tutti.h"

namespace {

/// A job of one rank.
class Alone {
public:
    Alone() {
        tutti_config* config = nullptr;
        REQUIRE(tutti_config_create(&config) == TUTTI_OK);
        REQUIRE(tutti_config_set(config, "rank", "0") == TUTTI_OK);
        REQUIRE(tutti_config_set(config, "size", "1") == TUTTI_OK);
        REQUIRE(tutti_comm_create(config, &comm) == TUTTI_OK);
        tutti_config_destroy(config);
    }
    ~Alone() { tutti_comm_destroy(comm); }
    Alone(const Alone&) = delete;

    tutti_comm* comm = nullptr;
};

void expect_unsupported(tutti_status status) {
    REQUIRE(status == TUTTI_ERR_UNSUPPORTED);
    REQUIRE(std::string(tutti_last_error()).find("no GPU support") != std::string::npos);
}

}  // namespace

TEST_CASE("a build without GPUs: every call that needs one is UNSUPPORTED") {
    const Alone job;
    int anything = 0;
    void* data = &anything;
    expect_unsupported(tutti_comm_use_device(job.comm, 0));
    expect_unsupported(tutti_comm_set_device_stream(job.comm, &anything));
    expect_unsupported(tutti_sync_calc_stream(job.comm, &anything));
    expect_unsupported(tutti_sync_comm_stream(job.comm, &anything));
    expect_unsupported(tutti_launch_start());
    expect_unsupported(tutti_launch_end());
    expect_unsupported(tutti_mem_alloc_device(job.comm, 64, &data));
    REQUIRE(data == nullptr);
}

TEST_CASE("a build without GPUs: a device stream in a call's options is UNSUPPORTED") {
    const Alone job;
    float x = 1;
    int stream = 0;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.device_stream = &stream;
    tutti_request* request = nullptr;
    expect_unsupported(
        tutti_iallreduce(job.comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request));
    REQUIRE(request == nullptr);
}

TEST_CASE("a build without GPUs: calls on host memory work, and waiting for devices is nothing") {
    const Alone job;
    float x = 3;
    REQUIRE(tutti_allreduce(job.comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
    REQUIRE(x == 3);
    REQUIRE(tutti_comm_sync(job.comm, -1) == TUTTI_OK);
    void* data = nullptr;
    REQUIRE(tutti_mem_alloc(job.comm, 4096, &data) == TUTTI_OK);
    REQUIRE(tutti_mem_free(job.comm, data) == TUTTI_OK);
}

TEST_CASE("a build without GPUs: a driver that the settings name is UNSUPPORTED") {
    tutti_config* config = nullptr;
    REQUIRE(tutti_config_create(&config) == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "rank", "0") == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "size", "1") == TUTTI_OK);
    REQUIRE(tutti_config_set(config, "cuda_library", "libcuda.so.1") == TUTTI_OK);
    tutti_comm* comm = nullptr;
    expect_unsupported(tutti_comm_create(config, &comm));
    REQUIRE(comm == nullptr);
    tutti_config_destroy(config);
}
