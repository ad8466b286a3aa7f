// Compares tutti-bench's expected results with plain arithmetic over the inputs of all ranks:
// correct memory passes, and every damaged element is counted.
#include "bench/collectives.h"

#include <cstdint>
#include <string>
#include <vector>

#include "bench/check.h"
#include "support/catch.h"
#include "support/sanitized.h"

using namespace bench;

namespace {

using Value = int64_t;
using Values = std::vector<Value>;

/// All ranks' memory around one call; in place the inputs lie in out.
struct World {
    Call call;
    int ranks;
    bool in_place;
    std::vector<Layout> layouts{};
    std::vector<Values> in{}, out{};
};

std::byte* bytes_in(Values& values) {
    return reinterpret_cast<std::byte*>(values.data());
}

World make_world(const Collective& collective, std::size_t count, int ranks, bool in_place) {
    World w{.call = {.collective = &collective,
                     .count = count,
                     .dtype = TUTTI_INT64,
                     .op = TUTTI_SUM,
                     .root = ranks - 1},
            .ranks = ranks,
            .in_place = in_place};
    Checker checker(ranks);
    const std::size_t elements = bytes_of(w.call, ranks) / sizeof(Value);
    for (int rank = 0; rank < ranks; ++rank) {
        w.layouts.push_back(layout_of(w.call, {rank, ranks}, in_place));
        w.in.emplace_back(elements);
        w.out.emplace_back(elements);
        checker.fill(bytes_in(w.in.back()), w.layouts.back().in, w.call);
        checker.fill(bytes_in(w.out.back()), w.layouts.back().before, w.call);
    }
    return w;
}

uint64_t wrong_in(World& w, int rank) {
    Checker checker(w.ranks);
    const auto r = static_cast<std::size_t>(rank);
    return checker.count_wrong(bytes_in(w.in[r]), w.layouts[r].in, w.call) +
           checker.count_wrong(bytes_in(w.out[r]), w.layouts[r].after, w.call);
}

struct Pointers {
    const Value* in;
    Value* out;
};

Pointers pointers(World& w, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::byte* out = bytes_in(w.out[r]);
    const Buffers b = place(w.call, {rank, w.ranks}, w.in_place ? out : bytes_in(w.in[r]), out);
    return {static_cast<const Value*>(b.in), static_cast<Value*>(b.out)};
}

/// Element i of what the rank gets, from the inputs as tutti.h describes it. n ranks, blocks of c.
Value result(const std::string& name, const std::vector<Values>& in, std::size_t me, std::size_t i,
             std::size_t c, std::size_t root) {
    const auto sum_of = [&](std::size_t ranks, std::size_t at) {
        Value sum = 0;
        for (std::size_t r = 0; r < ranks; ++r) sum += in[r][at];
        return sum;
    };
    if (name == "allreduce" || name == "reduce") return sum_of(in.size(), i);
    if (name == "broadcast") return in[root][i];
    if (name == "allgather" || name == "gather") return in[i / c][i % c];
    if (name == "reduce_scatter") return sum_of(in.size(), me * c + i);
    if (name == "scatter") return in[root][me * c + i];
    if (name == "alltoall") return in[i / c][me * c + i % c];
    if (name == "scan") return sum_of(me + 1, i);
    if (name == "exscan") return sum_of(me, i);
    throw std::logic_error("no model of " + name);
}

void run_model(World& w) {
    const Collective& c = *w.call.collective;
    std::vector<Values> inputs(static_cast<std::size_t>(w.ranks));
    for (int rank = 0; rank < w.ranks; ++rank) {
        if (!has(c.in, w.call, {rank, w.ranks})) continue;
        const Value* in = pointers(w, rank).in;
        inputs[static_cast<std::size_t>(rank)] =
            Values(in, in + elements_of(c.in, w.call, w.ranks));
    }
    for (int rank = 0; rank < w.ranks; ++rank) {
        if (!has(c.out, w.call, {rank, w.ranks})) continue;
        Value* out = pointers(w, rank).out;
        for (std::size_t i = 0; i < elements_of(c.out, w.call, w.ranks); ++i)
            out[i] = result(c.name, inputs, static_cast<std::size_t>(rank), i, w.call.count,
                            static_cast<std::size_t>(w.call.root));
    }
}

template <typename F>
void for_each_world(F&& use) {
    constexpr std::size_t many = tutti::test::sanitized ? 5'000 : 30'000;
    for (const Collective& collective : collectives()) {
        if (!collective.moves_data()) continue;
        for (const int ranks : {1, 2, 3, 5})
            for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, many})
                for (const bool in_place : {true, false}) {
                    if (!in_place && collective.always_in_place) continue;
                    INFO(collective.name << ", " << ranks << " ranks, " << count << " elements, "
                                         << (in_place ? "in place" : "out of place"));
                    World world = make_world(collective, count, ranks, in_place);
                    use(world);
                }
    }
}

}  // namespace

TEST_CASE("bench collectives: expectations are what plain arithmetic gives") {
    for_each_world([](World& world) {
        run_model(world);
        for (int rank = 0; rank < world.ranks; ++rank) REQUIRE(wrong_in(world, rank) == 0);
    });
}

TEST_CASE("bench collectives: every damaged element of any rank's memory is counted") {
    for_each_world([](World& world) {
        if (world.call.count == 0) return;
        run_model(world);
        for (int rank = 0; rank < world.ranks; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            std::size_t held = 0;
            for (const ContentRange& range : world.layouts[r].after) held += range.count;
            for (const std::size_t at : {std::size_t{0}, held / 2, held - 1}) {
                world.out[r][at] ^= 1;
                REQUIRE(wrong_in(world, rank) == 1);
                world.out[r][at] ^= 1;
            }
            if (world.in_place) continue;
            world.in[r][0] ^= 1;
            REQUIRE(wrong_in(world, rank) == 1);
            world.in[r][0] ^= 1;
        }
    });
}

TEST_CASE("bench collectives: an operation that did nothing is wrong where there is a result") {
    for_each_world([](World& world) {
        if (world.call.count < 7 || world.ranks < 2) return;
        for (int rank = 0; rank < world.ranks; ++rank) {
            const Seat seat{rank, world.ranks};
            INFO("rank " << rank);
            // A root's own part and a scan's first rank have their result in place already.
            const std::string name = world.call.collective->name;
            const bool there =
                world.in_place &&
                ((name == "broadcast" && rank == world.call.root) ||
                 (name == "scatter" && rank == world.call.root) || (name == "scan" && rank == 0));
            const bool gets = has(world.call.collective->out, world.call, seat);
            REQUIRE((wrong_in(world, rank) > 0) == (gets && !there));
        }
    });
}

TEST_CASE("bench collectives: busbw follows nccl-tests' convention") {
    const auto factors = [](const char* name) {
        const Collective& collective = *find_collective(name);
        return std::vector<double>{collective.busbw(1), collective.busbw(2), collective.busbw(4)};
    };
    REQUIRE(factors("allreduce") == std::vector<double>{0, 1, 1.5});
    for (const char* name : {"allgather", "reduce_scatter", "alltoall", "gather", "scatter"})
        REQUIRE(factors(name) == std::vector<double>{0, 0.5, 0.75});
    for (const char* name : {"broadcast", "reduce", "scan", "exscan"})
        REQUIRE(factors(name) == std::vector<double>{1, 1, 1});
    REQUIRE(factors("barrier") == std::vector<double>{0, 0, 0});
}

TEST_CASE("bench collectives: samples end together where a rank may leave before the others come") {
    for (const Collective& collective : collectives()) {
        const std::string name = collective.name;
        INFO(name);
        REQUIRE(collective.rooted() ==
                (name == "broadcast" || name == "reduce" || name == "gather" || name == "scatter"));
        REQUIRE(collective.one_way() ==
                (collective.rooted() || name == "scan" || name == "exscan"));
    }
    REQUIRE(find_collective("teleport") == nullptr);
}
