// tutti.hpp: calls by element type, errors as exceptions, requests and plans that own themselves.
#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "tutti/tutti.hpp"

namespace {

static_assert(tutti::dtype_of<float> == TUTTI_FLOAT32);
static_assert(tutti::dtype_of<const int8_t> == TUTTI_INT8);
static_assert(tutti::dtype_of<unsigned long long> == TUTTI_UINT64);
static_assert(tutti::dtype_of<std::byte> == TUTTI_UINT8);
static_assert(tutti::dtype_of<bool> == -1);
static_assert(tutti::dtype_of<long double> == -1);
static_assert(tutti::Buffer<std::vector<int>&>);
static_assert(!tutti::Buffer<const std::vector<int>&>, "results cannot be written to a constant");
static_assert(tutti::InputBuffer<const std::array<double, 3>&>);
static_assert(!tutti::InputBuffer<std::list<int>&>, "its elements are not contiguous");
static_assert(!std::is_copy_constructible_v<tutti::Communicator>);
static_assert(!std::is_copy_constructible_v<tutti::Request>);
static_assert(!std::is_copy_constructible_v<tutti::Plan>);

template <typename F>
tutti::Error error_of(F&& call) {
    try {
        call();
    } catch (const tutti::Error& error) {
        return error;
    }
    FAIL("no tutti::Error was thrown");
    throw std::logic_error("not reached");
}

bool says(const tutti::Error& error, const std::string& words) {
    return std::string(error.what()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("tutti.hpp: collectives take ranges, in place and into another") {
    tutti::Communicator comm;
    REQUIRE(comm.rank() == 0);
    REQUIRE(comm.size() == 1);
    const std::array<int32_t, 4> in{1, 2, 3, 4};
    std::vector<int32_t> out(4);
    comm.allreduce(in, out, TUTTI_MAX);
    REQUIRE(std::equal(in.begin(), in.end(), out.begin()));
    comm.allreduce(out);
    comm.broadcast(out);
    comm.barrier();
    REQUIRE(out[3] == 4);
}

TEST_CASE("tutti.hpp: errors carry the status, the rank at fault and the C API's sentence") {
    tutti::Communicator comm;
    std::vector<float> x(3);
    const tutti::Error root = error_of([&] { comm.broadcast(x, 5); });
    REQUIRE(root.status() == TUTTI_ERR_INVALID);
    REQUIRE(root.rank() == -1);
    REQUIRE(says(root, "root 5 is out of range"));
    std::vector<float> shorter(2);
    REQUIRE(
        says(error_of([&] { comm.allreduce(x, shorter); }), "input has 3 elements, output has 2"));
    tutti::Config config;
    const tutti::Error setting = error_of([&] { config.set("nrings", "none"); });
    REQUIRE(says(setting, "'none' is not a whole number"));
}

TEST_CASE("tutti.hpp: a request can be waited for twice, moved, and dropped") {
    tutti::Communicator comm;
    std::vector<double> x{1, 2};
    tutti::Request request = comm.iallreduce(x);
    tutti::Request moved = std::move(request);
    request.wait();  // it has nothing to wait for
    moved.wait();
    moved.wait();
    REQUIRE(moved.test());
    REQUIRE(moved.get() == nullptr);
    tutti::Request second = comm.ibroadcast(x);
    while (!second.wait_for(1000)) {
    }
    { const tutti::Request dropped = comm.ibarrier(); }
    comm.barrier();
}

TEST_CASE("tutti.hpp: a plan refuses buffers of another count or type") {
    tutti::Communicator comm(tutti::Config().set("nrings", "1"));
    tutti::Plan plan = comm.plan_allreduce<float>(3);
    std::vector<float> x{1, 2, 3}, longer(4);
    std::vector<int> other(3);
    plan.run(x);
    plan.start(x).wait();
    REQUIRE(x == std::vector<float>{1, 2, 3});
    REQUIRE(says(error_of([&] { plan.run(longer); }), "count and type"));
    REQUIRE(says(error_of([&] { plan.run(other); }), "count and type"));
    comm.plan_broadcast<int>(3).run(other);
    comm.plan_barrier().run();
}

TEST_CASE("tutti.hpp: abort ends the communicator with an error that says who") {
    tutti::Communicator comm;
    comm.abort();
    const tutti::Error error = error_of([&] { comm.barrier(); });
    REQUIRE(error.status() == TUTTI_ERR_ABORTED);
    REQUIRE(error.rank() == 0);
}
