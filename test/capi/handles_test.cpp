// Handles and reconfigure at the C API's edges, and their C++ faces.
#include <array>
#include <cstdint>
#include <string>

#include "capi/one_rank.h"
#include "tutti/tutti.hpp"

using namespace capi_test;

TEST_CASE("handles: the length is told, also without a place") {
    size_t bytes = 0;
    expect_invalid(tutti_comm_get_handle(nullptr, nullptr, 0, &bytes),
                   "tutti_comm_get_handle: the handle has");
    REQUIRE(bytes > 0);
    REQUIRE(bytes <= TUTTI_MAX_HANDLE_BYTES);
    std::string handle(bytes, '\0');
    REQUIRE(tutti_comm_get_handle(nullptr, handle.data(), bytes, &bytes) == TUTTI_OK);
    REQUIRE(bytes == handle.size());
    std::string again(TUTTI_MAX_HANDLE_BYTES, '\0');
    REQUIRE(tutti_comm_get_handle(nullptr, again.data(), again.size(), &bytes) == TUTTI_OK);
    REQUIRE(again.substr(0, bytes) == handle);
}

TEST_CASE("handles: a process meets itself") {
    std::string handle(TUTTI_MAX_HANDLE_BYTES, '\0');
    size_t bytes = 0;
    REQUIRE(tutti_comm_get_handle(nullptr, handle.data(), handle.size(), &bytes) == TUTTI_OK);
    const void* start = handle.data();
    for (const char* uuid : {"itself", "itself again"}) {
        tutti_comm* comm = nullptr;
        REQUIRE(tutti_comm_reconfigure(nullptr, uuid, &start, &bytes, 1, 0, &comm) == TUTTI_OK);
        REQUIRE(tutti_comm_size(comm) == 1);
        int32_t x = 42;
        REQUIRE(tutti_allreduce(comm, &x, &x, 1, TUTTI_INT32, TUTTI_SUM) == TUTTI_OK);
        REQUIRE(tutti_comm_destroy(comm) == TUTTI_OK);
    }
    tutti_comm* comm = reinterpret_cast<tutti_comm*>(&bytes);
    expect_invalid(tutti_comm_reconfigure(nullptr, "itself", &start, &bytes, 1, 0, &comm),
                   "uuid 'itself' was used before");
    REQUIRE(comm == nullptr);
}

TEST_CASE("tutti.hpp: handles and reconfigure are the C API's") {
    tutti::Config config;
    config.set("job", "in C++");
    const std::array handles{tutti::get_handle(&config)};
    tutti::Communicator comm = tutti::Communicator::reconfigure("in C++", handles, 1000, &config);
    REQUIRE(comm.size() == 1);
    std::array<float, 2> x{1, 2};
    comm.allreduce(x);
    REQUIRE(x == std::array<float, 2>{1, 2});
    REQUIRE(tutti::get_handle() != handles[0]);
    REQUIRE_THROWS_AS(tutti::Communicator::reconfigure("mine", handles), tutti::Error);
}
