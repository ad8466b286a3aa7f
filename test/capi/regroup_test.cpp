// Agreement and smaller communicators at the C API's edges, in a job of one rank.
#include <array>
#include <cstdint>

#include "capi/one_rank.h"
#include "tutti/tutti.hpp"

using namespace capi_test;

TEST_CASE("regroup: one rank agrees with itself") {
    const Comm comm;
    for (const uint64_t bits : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
        uint64_t agreed = bits;
        REQUIRE(tutti_comm_agree(comm, &agreed) == TUTTI_OK);
        REQUIRE(agreed == bits);
    }
    int ranks[1] = {7};
    size_t count = 7;
    REQUIRE(tutti_comm_lost(comm, ranks, 1, &count) == TUTTI_OK);
    REQUIRE(count == 0);
    REQUIRE(ranks[0] == 7);
    REQUIRE(tutti_comm_lost(comm, nullptr, 0, &count) == TUTTI_OK);
}

TEST_CASE("regroup: a smaller communicator works on its own, also after an abort of the first") {
    const Comm comm;
    REQUIRE(tutti_comm_abort(comm) == TUTTI_OK);
    REQUIRE(tutti_barrier(comm) == TUTTI_ERR_ABORTED);
    tutti_comm* smaller = nullptr;
    REQUIRE(tutti_comm_shrink(comm, &smaller) == TUTTI_OK);
    REQUIRE(tutti_comm_rank(smaller) == 0);
    REQUIRE(tutti_comm_size(smaller) == 1);
    tutti_comm* without_none = nullptr;
    REQUIRE(tutti_comm_shrink_without(smaller, nullptr, 0, &without_none) == TUTTI_OK);
    for (tutti_comm* working : {smaller, without_none}) {
        int32_t x = 42;
        REQUIRE(tutti_allreduce(working, &x, &x, 1, TUTTI_INT32, TUTTI_SUM) == TUTTI_OK);
        REQUIRE(x == 42);
        REQUIRE(tutti_comm_destroy(working) == TUTTI_OK);
    }
}

TEST_CASE("regroup: ranks that cannot be left out are named") {
    const Comm comm;
    tutti_comm* smaller = comm;
    const auto without = [&](const int* ranks, size_t count) {
        return tutti_comm_shrink_without(comm, ranks, count, &smaller);
    };
    const int itself = 0, beyond = 1, negative = -1;
    expect_invalid(without(&itself, 1), "name rank 0, which is this rank itself");
    REQUIRE(smaller == nullptr);
    expect_invalid(without(&beyond, 1),
                   "tutti_comm_shrink_without: the ranks to leave out name rank 1, which");
    expect_invalid(without(&negative, 1), "rank -1, which the communicator lacks");
    expect_invalid(without(nullptr, 1), "ranks is NULL");
}

TEST_CASE("regroup: null pointers are named") {
    const Comm comm;
    size_t count = 0;
    expect_invalid(tutti_comm_shrink(nullptr, nullptr), "tutti_comm_shrink: comm is NULL");
    expect_invalid(tutti_comm_shrink(comm, nullptr), "tutti_comm_shrink: smaller is NULL");
    expect_invalid(tutti_comm_agree(comm, nullptr), "tutti_comm_agree: bits is NULL");
    expect_invalid(tutti_comm_lost(comm, nullptr, 0, nullptr), "tutti_comm_lost: count is NULL");
    expect_invalid(tutti_comm_lost(comm, nullptr, 1, &count), "tutti_comm_lost: ranks is NULL");
}

TEST_CASE("regroup: a rank that has left keeps its handle") {
    const Comm comm;
    tutti_comm* larger = comm;
    expect_invalid(tutti_comm_grow(comm, 1, nullptr), "tutti_comm_grow: larger is NULL");
    expect_invalid(tutti_comm_grow(comm, 1, &larger), "has no store");
    REQUIRE(larger == nullptr);
    REQUIRE(tutti_comm_leave(comm) == TUTTI_OK);
    expect_invalid(tutti_barrier(comm), "this rank has left the communicator");
    expect_invalid(tutti_comm_leave(comm), "tutti_comm_leave: this rank has left");
    expect_invalid(tutti_comm_grow(comm, 1, &larger), "tutti_comm_grow: this rank has left");
    REQUIRE(tutti_comm_rank(comm) == 0);
    REQUIRE(tutti_comm_abort(comm) == TUTTI_OK);
}

TEST_CASE("tutti.hpp: growing and leaving are the C API's") {
    tutti::Communicator comm;
    REQUIRE_THROWS_AS(comm.grow(1), tutti::Error);
    comm.leave();
    REQUIRE_THROWS_AS(comm.barrier(), tutti::Error);
}

TEST_CASE("tutti.hpp: regrouping is the C API's") {
    tutti::Communicator comm;
    REQUIRE(comm.agree() == ~uint64_t{0});
    REQUIRE(comm.agree(6) == 6);
    REQUIRE(comm.lost().empty());
    tutti::Communicator smaller = comm.shrink();
    std::array<float, 2> x{1, 2};
    smaller.allreduce(x);
    REQUIRE(x == std::array<float, 2>{1, 2});
    REQUIRE(comm.shrink_without({}).size() == 1);
    const std::array<int, 1> itself{0};
    REQUIRE_THROWS_AS(comm.shrink_without(itself), tutti::Error);
}
