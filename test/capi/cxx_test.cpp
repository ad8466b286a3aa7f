// tutti.hpp: calls by element type, errors as exceptions, requests and plans that own themselves.
#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
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
static_assert(!std::is_copy_constructible_v<tutti::Operator>);
static_assert(tutti::InputList<std::vector<std::span<const float>>>);
static_assert(!tutti::InputList<std::vector<float>>, "one range is no list of ranges");

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

TEST_CASE("tutti.hpp: every collective copies when there is one rank, but for exscan") {
    tutti::Communicator comm;
    const std::vector<int> in{1, 2, 3};
    using Out = std::vector<int>;
    const auto copies = [&](auto&& call) {
        Out out(3);
        call(out);
        return out == in;
    };
    REQUIRE(copies([&](Out& out) { comm.reduce(in, out, TUTTI_MAX, 0); }));
    REQUIRE(copies([&](Out& out) { comm.allgather(in, out); }));
    REQUIRE(copies([&](Out& out) { comm.reduce_scatter(in, out, TUTTI_PROD); }));
    REQUIRE(copies([&](Out& out) { comm.gather(in, out); }));
    REQUIRE(copies([&](Out& out) { comm.scatter(in, out); }));
    REQUIRE(copies([&](Out& out) { comm.alltoall(in, out); }));
    REQUIRE(copies([&](Out& out) { comm.scan(in, out); }));
    REQUIRE_FALSE(copies([&](Out& out) { comm.exscan(in, out); }));
    REQUIRE(copies([&](Out& out) { comm.ireduce(in, out).wait(); }));
    REQUIRE(copies([&](Out& out) { comm.iallgather(in, out).wait(); }));
    REQUIRE(copies([&](Out& out) { comm.ireduce_scatter(in, out).wait(); }));
    REQUIRE(copies([&](Out& out) { comm.igather(in, out).wait(); }));
    REQUIRE(copies([&](Out& out) { comm.iscatter(in, out).wait(); }));
    REQUIRE(copies([&](Out& out) { comm.ialltoall(in, out).wait(); }));
    REQUIRE(copies([&](Out& out) { comm.iscan(in, out).wait(); }));
    REQUIRE_FALSE(copies([&](Out& out) { comm.iexscan(in, out).wait(); }));
}

TEST_CASE("tutti.hpp: collectives in place keep one rank's buffer as it is") {
    tutti::Communicator comm;
    std::vector<double> x{1, 2, 3};
    comm.reduce(x);
    comm.allgather(x);
    comm.reduce_scatter(x);
    comm.alltoall(x);
    comm.scan(x);
    comm.exscan(x, TUTTI_MIN);
    comm.ireduce(x).wait();
    comm.iallgather(x).wait();
    comm.ireduce_scatter(x).wait();
    comm.ialltoall(x).wait();
    comm.iscan(x).wait();
    comm.iexscan(x).wait();
    REQUIRE(x == std::vector<double>{1, 2, 3});
}

TEST_CASE("tutti.hpp: v forms take lists of counts, and of displacements for gaps") {
    tutti::Communicator comm;
    const std::vector<int16_t> in{1, 2};
    const std::vector<std::size_t> counts{2}, gap{1};
    using Out = std::vector<int16_t>;
    const auto result = [](std::size_t size, auto&& call) {
        Out out(size);
        call(out);
        return out;
    };
    const Out packed{1, 2}, spaced{0, 1, 2};
    REQUIRE(packed == result(2, [&](Out& out) { comm.allgatherv(in, out, counts); }));
    REQUIRE(spaced == result(3, [&](Out& out) { comm.allgatherv(in, out, counts, gap); }));
    REQUIRE(spaced == result(3, [&](Out& out) { comm.iallgatherv(in, out, counts, gap).wait(); }));
    REQUIRE(packed == result(2, [&](Out& out) { comm.reduce_scatterv(in, out, counts); }));
    REQUIRE(packed == result(2, [&](Out& out) { comm.ireduce_scatterv(in, out, counts).wait(); }));
    REQUIRE(spaced == result(3, [&](Out& out) { comm.gatherv(in, out, counts, 0, gap); }));
    REQUIRE(spaced == result(3, [&](Out& out) { comm.igatherv(in, out, counts, 0, gap).wait(); }));
    REQUIRE(packed == result(2, [&](Out& out) { comm.scatterv(spaced, counts, out, 0, gap); }));
    REQUIRE(packed ==
            result(2, [&](Out& out) { comm.iscatterv(spaced, counts, out, 0, gap).wait(); }));
    REQUIRE(spaced ==
            result(3, [&](Out& out) { comm.alltoallv(in, counts, out, counts, {}, gap); }));
    REQUIRE(packed ==
            result(2, [&](Out& out) { comm.ialltoallv(spaced, counts, out, counts, gap).wait(); }));
}

TEST_CASE("tutti.hpp: plans of v forms take buffers that end where their last blocks do") {
    tutti::Communicator comm;
    using Out = std::vector<int16_t>;
    const Out packed{1, 2}, spaced{0, 1, 2};
    const std::vector<std::size_t> counts{2}, gap{1}, pair{1, 1};
    const auto made = [](tutti::Plan plan, const Out& in, std::size_t size) {
        Out out(size);
        plan.run(in, out);
        return out;
    };
    REQUIRE(spaced == made(comm.plan_allgatherv<int16_t>(counts, gap), packed, 3));
    REQUIRE(packed == made(comm.plan_reduce_scatterv<int16_t>(counts), packed, 2));
    REQUIRE(spaced == made(comm.plan_gatherv<int16_t>(2, counts, 0, gap), packed, 3));
    REQUIRE(packed == made(comm.plan_scatterv<int16_t>(counts, 2, 0, gap), spaced, 2));
    REQUIRE(spaced == made(comm.plan_alltoallv<int16_t>(counts, counts, {}, gap), packed, 3));
    const auto text = [&](auto&& call) { return error_of(call); };
    REQUIRE(says(text([&] { made(comm.plan_allgatherv<int16_t>(counts, gap), packed, 2); }),
                 "do not fit the plan"));
    REQUIRE(says(text([&] { comm.plan_allgatherv<int16_t>(pair); }), "for 1 ranks"));
}

TEST_CASE("tutti.hpp: one rank is alone on one host") {
    const tutti::Communicator comm;
    REQUIRE(comm.local_rank() == 0);
    REQUIRE(comm.local_size() == 1);
    REQUIRE(comm.host_count() == 1);
    REQUIRE(comm.host_of(0) == 0);
    REQUIRE(comm.host_of(1) == -1);
    REQUIRE(tutti_comm_local_rank(nullptr) == -1);
    REQUIRE(tutti_comm_host_count(nullptr) == -1);
}

TEST_CASE("tutti.hpp: buffers and lists that do not fit the collective are refused") {
    tutti::Communicator comm;
    std::vector<float> two(2), three(3);
    const auto refused = [](auto&& call, const std::string& words) {
        const tutti::Error error = error_of(call);
        INFO(error.what());
        return error.status() == TUTTI_ERR_INVALID && says(error, words);
    };
    const std::string sizes = "input has 3 elements, output has 2";
    REQUIRE(refused([&] { comm.reduce(three, two); }, sizes));
    REQUIRE(refused([&] { comm.allgather(three, two); }, sizes));
    REQUIRE(refused([&] { comm.reduce_scatter(three, two); }, sizes));
    REQUIRE(refused([&] { comm.gather(three, two); }, sizes));
    REQUIRE(refused([&] { comm.scatter(three, two); }, sizes));
    REQUIRE(refused([&] { comm.alltoall(three, two); }, sizes));
    REQUIRE(refused([&] { comm.scan(three, two); }, sizes));
    REQUIRE(refused([&] { comm.exscan(three, two); }, sizes));
    REQUIRE(refused([&] { comm.gather(three, std::span<float>(), 1); }, "root 1 is out of range"));
    const std::vector<std::size_t> counts{3}, far{1}, pair{3, 3};
    REQUIRE(refused([&] { comm.allgatherv(three, three, pair); },
                    "2 counts and 0 displacements for 1 ranks"));
    REQUIRE(refused([&] { comm.allgatherv(two, three, counts); },
                    "input has 2 elements, this rank's count is 3"));
    REQUIRE(refused([&] { comm.gatherv(three, two, counts); },
                    "output has 2 elements, its blocks need 3"));
    REQUIRE(refused([&] { comm.scatterv(three, counts, three, 0, far); },
                    "input has 3 elements, its blocks need 4"));
    REQUIRE(refused([&] { comm.reduce_scatterv(three, two, counts); },
                    "output has 2 elements, this rank's count is 3"));
    REQUIRE(refused([&] { comm.alltoallv(three, counts, three, counts, {}, far); },
                    "output has 3 elements, its blocks need 4"));
}

TEST_CASE("tutti.hpp: sizes are compared in blocks, of which each rank has one") {
    const std::vector<int> block(2), row(6), odd(5);
    using tutti::detail::block_count;
    REQUIRE(block_count(block, row, 1, 3) == 2);
    REQUIRE(block_count(row, block, 3, 1) == 2);
    REQUIRE(block_count(row, row, 3, 3) == 2);
    const auto refused = [](auto&& call) { return says(error_of(call), "blocks of one length"); };
    REQUIRE(refused([&] { block_count(block, odd, 1, 3); }));
    REQUIRE(refused([&] { block_count(odd, block, 3, 1); }));
    REQUIRE(refused([&] { block_count(odd, odd, 3, 3); }));
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

TEST_CASE("tutti.hpp: every collective has a plan") {
    tutti::Communicator comm;
    const std::vector<float> in{1, 2, 3};
    const auto copies = [&](tutti::Plan plan) {
        std::vector<float> out(3), longer(4);
        plan.run(in, out);
        plan.start(in, out).wait();
        REQUIRE(says(error_of([&] { plan.run(longer, out); }), "count and type"));
        return out == in;
    };
    REQUIRE(copies(comm.plan_reduce<float>(3, TUTTI_MAX, 0)));
    REQUIRE(copies(comm.plan_allgather<float>(3)));
    REQUIRE(copies(comm.plan_reduce_scatter<float>(3)));
    REQUIRE(copies(comm.plan_gather<float>(3)));
    REQUIRE(copies(comm.plan_scatter<float>(3)));
    REQUIRE(copies(comm.plan_alltoall<float>(3)));
    REQUIRE(copies(comm.plan_scan<float>(3)));
    REQUIRE_FALSE(copies(comm.plan_exscan<float>(3)));
}

TEST_CASE("tutti.hpp: operators of the program's own stand where the built-in ones do") {
    tutti::Communicator comm;
    long calls = 0;
    const auto combine = [](const void* first, const void* second, void* result, std::size_t count,
                            tutti_dtype, void* user) {
        *static_cast<long*>(user) += static_cast<long>(count);
        const auto *a = static_cast<const int*>(first), *b = static_cast<const int*>(second);
        for (std::size_t i = 0; i < count; ++i) static_cast<int*>(result)[i] = a[i] * 10 + b[i];
    };
    const tutti::Operator digits(combine, &calls, {.commutative = false});
    std::vector<int> out(2);
    comm.allreduce_multi(std::vector<std::vector<int>>{{1, 2}, {3, 4}, {5, 6}}, out, digits);
    REQUIRE(out == std::vector<int>{135, 246});
    REQUIRE(calls == 4);
    comm.allreduce(out, digits);
    comm.iscan(out, digits).wait();
    REQUIRE(out == std::vector<int>{135, 246});
    const tutti::Operator pairs(combine, &calls, {.item_elements = 2});
    std::vector<int> odd(3);
    REQUIRE(says(error_of([&] { comm.allreduce(odd, pairs); }), "3 is not a multiple of 2"));
    REQUIRE(says(error_of([] { const tutti::Operator none(nullptr); }), "spec.combine is NULL"));
}

TEST_CASE("tutti.hpp: an operator's handle goes with it, and a plan survives it") {
    tutti::Communicator comm;
    std::vector<double> x{1, 2};
    tutti_op handle = -1;
    const auto plan_of = [&](tutti::Operator op) {
        handle = op;
        return comm.plan_allreduce<double>(2, op);
    };
    tutti::Operator half = comm.premul_sum(0.5);
    tutti::Plan plan = plan_of(std::move(half));
    REQUIRE(tutti_op_name(handle) == nullptr);
    plan.run(x);
    REQUIRE(x == std::vector<double>{0.5, 1});
    REQUIRE(says(error_of([&] { comm.allreduce(x, handle); }), "was destroyed"));
    half = comm.premul_sum(4.0);
    comm.allreduce(x, half);
    REQUIRE(x == std::vector<double>{2, 4});
}

TEST_CASE("tutti.hpp: several inputs come as a range of ranges, in every form") {
    tutti::Communicator comm;
    const std::array<int16_t, 3> a{1, 2, 3}, b{10, 20, 30};
    const std::vector<std::span<const int16_t>> both{a, b};
    const std::vector<int16_t> sum{11, 22, 33};
    std::vector<int16_t> out(3);
    const auto is_sum = [&] { return std::exchange(out, std::vector<int16_t>(3)) == sum; };
    comm.allreduce_multi(both, out);
    REQUIRE(is_sum());
    comm.iallreduce_multi(std::vector(both), out).wait();  // the list is gone when it waits
    REQUIRE(is_sum());
    tutti::Plan plan = comm.plan_allreduce_multi<int16_t>(2, 3);
    plan.run(both, out);
    REQUIRE(is_sum());
    plan.start(std::vector(both), out).wait();
    REQUIRE(is_sum());
    std::vector<int16_t> longer(4);
    std::vector<float> floats(3);
    const std::vector<std::span<const float>> two{floats, floats};
    REQUIRE(says(error_of([&] { comm.allreduce_multi(both, longer); }),
                 "input 0 has 3 elements, output has 4"));
    const std::string misfit = "do not fit the plan";
    REQUIRE(says(error_of([&] { plan.run(out); }), misfit));
    REQUIRE(says(error_of([&] { plan.run(two, floats); }), misfit));
    REQUIRE(says(error_of([&] { plan.run(std::vector{both[0]}, out); }),
                 "1 inputs of 3 " + ("elements " + misfit)));
    REQUIRE(says(error_of([&] { comm.plan_allreduce_multi<int>(0, 3); }), "nin is 0"));
}

TEST_CASE("tutti.hpp: parts are communicators of their own, and a rank can talk to itself") {
    tutti::Communicator comm;
    std::optional<tutti::Communicator> part = comm.split(3);
    REQUIRE(part);
    REQUIRE(part->size() == 1);
    REQUIRE_FALSE(comm.split(-1));
    tutti::Communicator host = comm.split_host(), copy = comm.dup();
    const std::vector<double> out{1, 2, 3};
    std::vector<double> in(5);
    copy.send(out, 0, 7);
    const tutti_recv_status status = copy.recv(in, TUTTI_ANY_SOURCE, 7);
    REQUIRE(status.count == 3);
    REQUIRE(status.source == 0);
    REQUIRE(in[2] == 3);
    tutti_recv_status later{};
    tutti::Request receive = host.irecv(in, 0, 1, &later);
    host.isend(out, 0, 1).wait();
    receive.wait();
    REQUIRE(later.count == 3);
    std::vector<float> other(3);
    copy.send(out, 0, 7);
    REQUIRE(says(error_of([&] { copy.recv(other, 0, 7); }), "rank 0 sent float64 with tag 7"));
}

TEST_CASE("tutti.hpp: abort ends the communicator with an error that says who") {
    tutti::Communicator comm;
    comm.abort();
    const tutti::Error error = error_of([&] { comm.barrier(); });
    REQUIRE(error.status() == TUTTI_ERR_ABORTED);
    REQUIRE(error.rank() == 0);
}

TEST_CASE("tutti.hpp: revoke ends the communicator, and not its copy") {
    tutti::Communicator comm;
    tutti::Communicator copy = comm.dup();
    comm.revoke();
    const tutti::Error error = error_of([&] { comm.barrier(); });
    REQUIRE(error.status() == TUTTI_ERR_REVOKED);
    REQUIRE(error.rank() == 0);
    REQUIRE(says(error, "rank 0 revoked the communicator"));
    copy.barrier();
}
