// Messages between ranks' device memory.
#include <atomic>
#include <chrono>

#include "nccl/messages.h"

using namespace gpu_test;

TEST_CASE("device messages: a ring of all ranks at once, and what was received is told") {
    for (const Rank ranks : {1, 2, 3, 4})
        run({.ranks = ranks}, [](Ranked& r) {
            join(r);
            for (const std::size_t floats : {std::size_t{1}, std::size_t{70'000}}) ring(r, floats);
        });
}

TEST_CASE("device messages: every pair at once, each its own length") {
    for (const Rank ranks : {3, 4})
        run({.ranks = ranks}, [](Ranked& r) {
            join(r);
            for (int round = 0; round < 3; ++round) all_pairs(r, round);
        });
}

TEST_CASE("device messages: pairs of three and four ranks at a time, the others elsewhere") {
    for (const Rank ranks : {3, 4})
        run({.ranks = ranks}, [](Ranked& r) {
            join(r);
            // Down the line one by one, each a piece longer; then all of it back to the first.
            const auto length = [](Rank rank) { return std::size_t{5'000} * (1 + rank); };
            const Rank last = r.size - 1;
            const OnDevice data(r.rank, values_of(r.rank, length(last)));
            if (r.rank > 0)
                r.works(r.comm->offload().run({receive_of(data, length(r.rank - 1), r.rank - 1)}),
                        "from");
            if (r.rank < last)
                r.works(r.comm->offload().run({send_of(data, length(r.rank), r.rank + 1)}), "to");
            if (r.rank == last)
                r.works(r.comm->offload().run({send_of(data, length(last), 0, 1)}), "back");
            if (r.rank == 0)
                r.works(r.comm->offload().run({receive_of(data, length(last), last, 1)}),
                        "and here");
            r.works(r.comm->offload().sync(-1), "sync");
            std::vector<float> wanted;
            for (Rank from = 0; from < r.size; ++from) {
                const auto values = values_of(from, length(from));
                const auto begin = static_cast<std::ptrdiff_t>(wanted.size());
                wanted.insert(wanted.end(), values.begin() + begin, values.end());
            }
            if (r.rank == 0) r.holds(data.floats() == wanted, "a piece of everyone");
        });
}

TEST_CASE("device messages: in the order of their stream, blocking, and beside collectives") {
    run({.ranks = 2}, [](Ranked& r) {
        join(r);
        messages_between_kernels(r);
    });
}

TEST_CASE("device messages: several between a pair, none of no bytes, and to itself") {
    run({.ranks = 2}, [](Ranked& r) {
        join(r);
        const Rank peer = 1 - r.rank;
        const OnDevice a(r.rank, values_of(r.rank, 10)), b(r.rank, values_of(r.rank + 10, 20)),
            c(r.rank, std::vector<float>(10)), d(r.rank, std::vector<float>(20)),
            self(r.rank, std::vector<float>(10));
        r.works(both_ways(r, {receive_of(c, 10, peer, 1), send_of(a, 10, peer, 1),
                              send_of(b, 20, peer, 2), receive_of(d, 20, peer, 2),
                              send_of(a, 0, peer, 3), receive_of(c, 0, peer, 3),
                              send_of(a, 10, r.rank, 4), receive_of(self, 10, r.rank, 4)}),
                "all at once");
        r.holds(c.floats() == values_of(peer, 10), "the first");
        r.holds(d.floats() == values_of(peer + 10, 20), "the second");
        r.holds(self.floats() == values_of(r.rank, 10), "to itself");
    });
}

TEST_CASE("device messages: another length, tag or type is told with both sides' words") {
    for (const int what : {0, 1, 2})
        run({.ranks = 2}, [what](Ranked& r) {
            join(r);
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            OffloadMessage message =
                r.rank == 0 ? send_of(data, 100, 1, 5) : receive_of(data, 100, 0, 5);
            if (r.rank == 0 && what == 0) message.bytes = 80;
            if (r.rank == 0 && what == 1) message.tag = 6;
            if (r.rank == 0 && what == 2) message.dtype = Dtype::int32;
            const auto done = both_ways(r, {message});
            // The sender of what NCCL takes all the same may be through before.
            if (r.rank == 1 || !done) r.fails(done, Code::mismatch, "rank 0 sent");
        });
}

TEST_CASE("device messages: a peer that does not come is named, and the buffers are let go") {
    std::atomic<int> heard{0};
    run({.ranks = 2}, [&](Ranked& r) {
        join(r);
        peer_that_does_not_come(r, heard);
    });
}

TEST_CASE("device messages: an abort and NCCL's errors end them") {
    for (const int what : {-1, static_cast<int>(fake_fail_launch)}) {
        std::atomic<int> ready{0};
        run({.ranks = 2}, [&](Ranked& r) {
            join(r);
            ++ready;
            for (int i = 0; i < 20'000 && ready < 2; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (r.rank == 1 && what < 0) return r.comm->abort();
            if (r.rank == 1) fake_cuda_tell(what, 1);
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            const auto message = r.rank == 0 ? receive_of(data, 100, 1) : send_of(data, 100, 0);
            r.fails(both_ways(r, {message}), what < 0 ? Code::aborted : Code::system,
                    what < 0 ? "tutti_comm_abort" : "internal error");
        });
        if (what >= 0) fake_cuda_tell(what, -1);
    }
}

TEST_CASE("device messages: what cannot be is said before anything is launched") {
    run({.ranks = 2}, [](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(100, 1)),
            other(r.rank + 2, std::vector<float>(100, 1));
        r.fails(both_ways(r, {send_of(data, 100, 1 - r.rank)}), Code::unsupported,
                "tutti_comm_use_device");
        join(r);
        r.fails(r.comm->offload().use(r.rank + 2), Code::invalid, "the communicator's device is");
        r.fails(both_ways(r, {receive_of(data, 100, any_source)}), Code::unsupported,
                "TUTTI_ANY_SOURCE");
        r.fails(both_ways(r, {send_of(data, 100, 2)}), Code::invalid, "out of range");
        r.fails(both_ways(r, {send_of(other, 100, 0)}), Code::invalid, "memory of device");
        std::vector<float> host(1 << 20, 1);
        OffloadMessage mixed = send_of(data, 100, 1 - r.rank);
        mixed.memory = reinterpret_cast<std::byte*>(host.data());
        r.fails(both_ways(r, {mixed}), Code::invalid, "host memory");
        const OnDevice theirs(r.rank, std::vector<float>(100));
        r.works(both_ways(r, {send_of(data, 100, 1 - r.rank), receive_of(theirs, 100, 1 - r.rank)}),
                "and it works");
        r.holds(theirs.floats() == std::vector<float>(100, 1), "its values");
    });
}
