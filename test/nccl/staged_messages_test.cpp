// Messages on device memory that travel on the host.
#include <atomic>
#include <barrier>
#include <chrono>

#include "gpu/device_group_batch.h"
#include "nccl/messages.h"

using namespace gpu_test;

namespace {

Job staged_job(Rank ranks) {
    return {.ranks = ranks, .change = [](Config& c) { c.device = DeviceMode::staged; }};
}

// Less than what is sent at once, more, and more than one message of a channel.
const std::vector<std::size_t> lengths = {1, 9'000, 70'000, 1'500'000};

}  // namespace

TEST_CASE("staged messages: a ring of all ranks at once, and what was received is told") {
    for (const Rank ranks : {1, 2, 3, 4})
        run(staged_job(ranks), [](Ranked& r) {
            for (const std::size_t floats : lengths) ring(r, floats);
        });
}

TEST_CASE("staged messages: every pair at once, each its own length") {
    for (const Rank ranks : {3, 4})
        run(staged_job(ranks), [](Ranked& r) {
            for (int round = 0; round < 3; ++round) all_pairs(r, round);
        });
}

TEST_CASE("staged messages: so do ranks that go the hierarchical way, once they have joined") {
    for (const std::vector<int>& hosts : {std::vector{0, 1, 1}, {0, 0, 1, 1}})
        run(job_on(hosts), [](Ranked& r) {
            const OnDevice data(r.rank, std::vector<float>(10, 1));
            if (r.rank < 2)
                r.fails(both_ways(r, {send_of(data, 10, 1 - r.rank)}), Code::unsupported,
                        "tutti_comm_use_device");
            join(r);
            for (const std::size_t floats : lengths) ring(r, floats);
            all_pairs(r, 0);
        });
}

TEST_CASE("staged messages: from anyone, shorter than the buffer, whose rest is left alone") {
    for (const Rank ranks : {2, 3, 4})
        run(staged_job(ranks), [](Ranked& r) {
            constexpr std::size_t room = 60'000;
            const auto length = [](Rank rank) { return std::size_t{20'000} * (1 + rank % 2) + 7; };
            if (r.rank > 0) {
                const OnDevice mine(r.rank, values_of(r.rank, room));
                r.works(both_ways(r, {send_of(mine, length(r.rank), 0, 3)}), "send");
                return;
            }
            std::vector<bool> seen(static_cast<std::size_t>(r.size));
            for (Rank i = 1; i < r.size; ++i) {
                const OnDevice got(r.rank, std::vector<float>(room, -1));
                Received status;
                r.works(both_ways(r, {receive_of(got, room, any_source, 3, &status)}), "receive");
                if (!r.holds(status.source > 0 && status.source < r.size && status.tag == 3 &&
                                 status.count == length(status.source),
                             "the status"))
                    return;
                r.holds(!seen[static_cast<std::size_t>(status.source)], "each once");
                seen[static_cast<std::size_t>(status.source)] = true;
                std::vector<float> wanted(room, -1);
                const auto sent = values_of(status.source, room);
                std::copy_n(sent.begin(), status.count, wanted.begin());
                r.holds(got.floats() == wanted, "the values, and what is behind them");
            }
        });
}

TEST_CASE("staged messages: between a device and a host's memory") {
    run(staged_job(2), [](Ranked& r) {
        constexpr std::size_t floats = 50'000;
        std::vector<float> mine = values_of(r.rank, floats), theirs(floats);
        const OnDevice data(r.rank, mine), got(r.rank, theirs);
        const auto on_host = [&](bool sends, std::vector<float>& memory) {
            Transfer t;
            t.sends = sends;
            t.peer = 1 - r.rank;
            t.user_tag = 2;
            t.memory = reinterpret_cast<std::byte*>(memory.data());
            t.bytes = floats * sizeof(float);
            t.dtype = Dtype::float32;
            r.works(r.comm->messages().run(t), "on the host");
        };
        if (r.rank == 0) {
            r.works(both_ways(r, {send_of(data, floats, 1, 2)}), "send");
            r.works(both_ways(r, {receive_of(got, floats, 1, 2)}), "receive");
        } else {
            on_host(false, theirs);
            on_host(true, mine);
        }
        r.holds((r.rank == 0 ? got.floats() : theirs) == values_of(1 - r.rank, floats), "values");
    });
}

// Pinning memory may wait for the device, and so for an open receive: a group pins it first.
TEST_CASE("staged messages: a group has its memory before it is launched, and it is used again") {
    const Told waits(fake_waiting_alloc, 0);
    run(staged_job(2), [](Ranked& r) {
        static std::barrier together(2);
        const Rank peer = 1 - r.rank;
        for (const std::size_t floats : {100, 40'000}) ring(r, floats);
        const OnDevice mine(r.rank, values_of(r.rank, 100)),
            theirs(r.rank, std::vector<float>(100));
        const device::DeviceStream in = stream_of(r), out = stream_of(r);
        auto received = r.comm->offload().start({receive_of(theirs, 100, peer)}, -1, in.handle());
        together.arrive_and_wait();
        r.works(both_ways(r, {send_of(mine, 100, peer)}, -1, out.handle()), "send");
        r.works(r.finish(std::move(received)), "receive");
        r.holds(theirs.floats() == values_of(peer, 100), "the other's values");
    });
}

TEST_CASE("staged: a program that moves everything itself does so before memory is made") {
    const Told waits(fake_waiting_alloc, 0);
    const auto manual = [](Config& c) {
        c.device = DeviceMode::staged;
        c.progress = ProgressMode::manual;
    };
    run({.ranks = 2, .change = manual}, [](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(1000, 1));
        std::vector<std::unique_ptr<Request>> requests;
        for (const std::size_t count : {100, 1000}) {
            auto sum = r.comm->calls().start(call_of(Collective::allreduce, count), -1, -1,
                                             data.get(), data.get());
            if (!r.works(sum, "start")) return;
            requests.push_back(std::move(*sum));
        }
        for (auto& request : requests) r.works(r.finish(std::move(request)), "sum");
        r.holds(data.floats()[0] == 4 && data.floats()[999] == 2, "the values");
    });
}

TEST_CASE("staged messages: both send first, one by one, and to oneself") {
    run(staged_job(2), [](Ranked& r) {
        constexpr std::size_t floats = 80'000;
        const OnDevice mine(r.rank, values_of(r.rank, floats)),
            theirs(r.rank, std::vector<float>(floats)), self(r.rank, std::vector<float>(floats));
        const Rank peer = 1 - r.rank;
        r.works(r.comm->offload().run({send_of(mine, floats, peer)}), "send");
        r.works(r.comm->offload().run({receive_of(theirs, floats, peer)}), "receive");
        r.works(r.comm->offload().run({send_of(mine, floats, r.rank, 9),
                                       receive_of(self, floats, r.rank, 9),
                                       send_of(mine, 0, peer, 8), receive_of(self, 0, peer, 8)}),
                "to itself, and nothing");
        r.works(r.comm->offload().sync(-1), "sync");
        r.holds(theirs.floats() == values_of(peer, floats), "the other's values");
        r.holds(self.floats() == values_of(r.rank, floats), "its own");
    });
}

TEST_CASE("staged messages: in the order of their stream, blocking, and beside collectives") {
    run(staged_job(2), [](Ranked& r) { messages_between_kernels(r); });
}

TEST_CASE("staged messages: the host goes on while a receive waits") {
    run(staged_job(2), [](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        int32_t word = 0;
        Transfer go;
        go.sends = r.rank == 0;
        go.peer = 1 - r.rank;
        go.memory = reinterpret_cast<std::byte*>(&word);
        go.bytes = sizeof word;
        // Rank 1 sends what rank 0 has begun to receive only once rank 0 has gone on.
        if (r.rank == 0) r.works(r.comm->offload().run({receive_of(data, 100, 1)}), "receive");
        r.works(r.comm->messages().run(go), "the word");
        const OnDevice other(r.rank, std::vector<float>(100, 5));
        if (r.rank == 1) r.works(r.comm->offload().run({send_of(other, 100, 0)}), "send");
        r.works(r.comm->offload().sync(-1), "sync");
        if (r.rank == 0) r.holds(data.floats() == std::vector<float>(100, 5), "the values");
    });
}

// Each of two streams of rank 0 has something that waits for the other's peer.
TEST_CASE("staged messages: streams do not wait for each other, and tags keep their order") {
    run(staged_job(2), [](Ranked& r) {
        constexpr std::size_t floats = 100;
        const OnDevice a(r.rank, std::vector<float>(floats, 1)),
            b(r.rank, std::vector<float>(floats, 2)), c(r.rank, std::vector<float>(floats, 3));
        const device::DeviceStream first = stream_of(r), second = stream_of(r);
        std::vector<Result<std::unique_ptr<Request>>> all;
        const auto start = [&](const OffloadMessage& one, const device::DeviceStream& on) {
            all.push_back(r.comm->offload().start(std::vector{one}, -1, on.handle()));
        };
        if (r.rank == 0) {
            start(receive_of(a, floats, 1, 1), first);
            start(send_of(a, floats, 1, 2), first);
            // Overtakes the one before it, which waits for rank 1, which waits for this.
            start(send_of(b, floats, 1, 3), second);
            // It has the same tag, so it must not overtake.
            start(send_of(c, floats, 1, 2), second);
        } else {
            start(receive_of(b, floats, 0, 3), first);
            start(send_of(b, floats, 0, 1), first);
            start(receive_of(a, floats, 0, 2), second);
            start(receive_of(c, floats, 0, 2), second);
        }
        for (auto& request : all) r.works(r.finish(std::move(request)), "a message");
        r.holds(a.floats() == std::vector<float>(floats, 2), "rank 0's first, round about");
        r.holds(c.floats() == std::vector<float>(floats, 3), "then its second");
    });
}

#ifndef __SANITIZE_THREAD__  // a race on purpose
TEST_CASE("staged messages: a stream that does not wait gives other values") {
    const Told drop(fake_drop_words, 1);
    std::atomic<int> written{0};  // by rank 1's stream, before it gets the message
    run(staged_job(2), [&](Ranked& r) {
        constexpr std::size_t floats = 100'000;
        const device::DeviceStream stream = stream_of(r);
        const OnDevice data(r.rank, std::vector<float>(floats, 1));
        if (r.rank == 0) {
            wait_for(written, 1);
            fake_cuda_increment(stream.handle(), data.get(), floats, 50'000);
            r.works(
                r.finish(r.comm->offload().start({send_of(data, floats, 1)}, -1, stream.handle())),
                "send");
            return;
        }
        auto request = r.comm->offload().start({receive_of(data, floats, 0)}, -1, stream.handle());
        fake_cuda_increment(stream.handle(), data.get(), floats, 0);
        fake_cuda_synchronize(stream.handle());
        written = 1;
        r.works(r.finish(std::move(request)), "receive");
        fake_cuda_synchronize(stream.handle());
        r.holds(data.floats() != std::vector<float>(floats, 3), "the wait was not needed");
    });
}
#endif

TEST_CASE("staged messages: pinned memory is used again") {
    (void)fake_cuda_most_pinned();
    run(staged_job(2), [](Ranked& r) {
        constexpr std::size_t floats = 50'000;
        const OnDevice data(r.rank, values_of(r.rank, floats));
        for (int round = 0; round < 20; ++round) {
            if (r.rank == 0) r.works(both_ways(r, {send_of(data, floats - round, 1)}), "send");
            if (r.rank == 1) r.works(both_ways(r, {receive_of(data, floats, 0)}), "receive");
        }
    });
    // Each rank rounds 200,000 bytes up to a power of two.
    REQUIRE(fake_cuda_most_pinned() <= 2 * 262'144);
}

TEST_CASE("staged messages: one that does not fit is its own trouble") {
    run(staged_job(2), [](Ranked& r) {
        constexpr std::size_t floats = 20'000;
        const OnDevice a(r.rank, values_of(r.rank, floats)), b(r.rank, values_of(r.rank, floats));
        for (const bool small : {false, true}) {
            if (r.rank == 0) {
                const auto sent =
                    both_ways(r, {send_of(a, floats, 1, 1), send_of(b, floats, 1, 2)});
                if (small) r.fails(sent, Code::invalid, "could not take");
                continue;
            }
            const OnDevice c(r.rank, std::vector<float>(floats)),
                d(r.rank, std::vector<float>(floats));
            OffloadMessage odd = receive_of(c, small ? floats - 1 : floats, 0, 1);
            if (!small) odd.dtype = Dtype::int32;
            r.fails(both_ways(r, {odd, receive_of(d, floats, 0, 2)}),
                    small ? Code::invalid : Code::mismatch, "rank 0 sent");
            r.holds(d.floats() == values_of(0, floats), "the other one's values");
            r.holds(c.floats() == std::vector<float>(floats), "untouched");
        }
        ring(r, 100);
    });
}

TEST_CASE("staged messages: a peer that does not come is named, and the buffer is let go") {
    std::atomic<int> heard{0};
    run(staged_job(2), [&](Ranked& r) { peer_that_does_not_come(r, heard); });
}

TEST_CASE("staged messages: an abort and a broken device end them, also what nobody waited for") {
    for (const bool breaks : {false, true}) {
        std::atomic<int> ready{0}, over{0};
        run(staged_job(2), [&](Ranked& r) {
            ring(r, 100);
            ++ready;
            wait_for(ready, 2);
            if (r.rank == 1) {
                wait_for(ready, 3);
                if (!breaks) r.comm->abort();
                return wait_for(over, 1);
            }
            const device::DeviceStream stream = stream_of(r);
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            fake_cuda_increment(stream.handle(), data.get(), 100, 50'000);
            auto request = r.comm->offload().start(
                {receive_of(data, 100, 1), send_of(data, 100, 1, 4)}, -1, stream.handle());
            r.works(r.comm->offload().run({receive_of(data, 100, 1, 5)}), "another");
            ++ready;
            if (breaks) fake_cuda_break(0, 700);
            r.fails(r.finish(std::move(request)), breaks ? Code::system : Code::aborted,
                    breaks ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "tutti_comm_abort");
            fake_cuda_break(0, 0);
            r.holds(!r.comm->offload().sync(-1), "the other one fails too");
            fake_cuda_synchronize(stream.handle());
            over = 1;
        });
    }
}

TEST_CASE("staged messages: one thread calls for several ranks") {
    std::vector<Ranked*> all(3);
    std::barrier together(3);
    run(staged_job(3), [&](Ranked& r) {
        all[static_cast<std::size_t>(r.rank)] = &r;
        together.arrive_and_wait();
        if (r.rank == 0) {
            std::vector<std::unique_ptr<OnDevice>> data, got;
            DeviceGroupBatch::here().open();
            for (Ranked* one : all) {
                data.push_back(std::make_unique<OnDevice>(one->rank, values_of(one->rank, 9'000)));
                got.push_back(std::make_unique<OnDevice>(one->rank, std::vector<float>(9'000)));
                r.works(
                    one->comm->offload().run({send_of(*data.back(), 9'000, (one->rank + 1) % 3),
                                              receive_of(*got.back(), 9'000, (one->rank + 2) % 3)}),
                    "messages");
            }
            r.works(DeviceGroupBatch::here().close(), "launch");
            for (std::size_t i = 0; i < all.size(); ++i) {
                r.works(all[i]->comm->offload().sync(-1), "sync");
                r.holds(got[i]->floats() == values_of(static_cast<Rank>((i + 2) % 3), 9'000),
                        "the neighbour's values");
            }
        }
        together.arrive_and_wait();
    });
}

TEST_CASE("staged messages: gathered, each called by itself, the receive first") {
    run({.ranks = 2,
         .change =
             [](Config& c) {
                 c.device = DeviceMode::staged;
                 c.timeout_ms = 30'000;
             }},
        [](Ranked& r) {
            const OnDevice mine(r.rank, values_of(r.rank, 9'000)),
                theirs(r.rank, std::vector<float>(9'000));
            const device::DeviceStream stream = stream_of(r);
            std::vector<Result<std::unique_ptr<Request>>> all;
            DeviceGroupBatch::here().open();
            for (const OffloadMessage& one :
                 {receive_of(theirs, 9'000, 1 - r.rank, 3), send_of(mine, 9'000, 1 - r.rank, 3)})
                all.push_back(r.comm->offload().start(std::vector{one}, -1, stream.handle()));
            r.works(DeviceGroupBatch::here().close(), "launch");
            for (auto& request : all) r.works(r.finish(std::move(request)), "a message");
            r.holds(theirs.floats() == values_of(1 - r.rank, 9'000), "the other's values");
        });
}

// As a driver may: nothing that is put on a stream later may be needed for what is on it already.
TEST_CASE("staged: a program that frees device memory meanwhile waits for its stream only") {
    std::atomic<int> freeing{0};
    run(staged_job(2), [&](Ranked& r) {
        constexpr std::size_t floats = 1000;
        const OnDevice data(r.rank, std::vector<float>(floats, 1));
        const device::DeviceStream stream = stream_of(r);
        const Call sum = call_of(Collective::allreduce, floats);
        r.works(
            r.finish(r.comm->calls().start(sum, 0, -1, data.get(), data.get(), stream.handle())),
            "one that makes pinned memory");
        const auto both = [&](int freers, const auto& start) {
            if (r.rank == 1) {
                wait_for(freeing, freers);
                r.works(r.finish(start()), "rank 1's");
                return;
            }
            auto request = start();
            std::thread freer([&] { fake_cuda_free_meanwhile(stream.handle(), &freeing); });
            r.works(r.finish(std::move(request)), "rank 0's");
            freer.join();
        };
        both(1, [&] {
            return r.comm->calls().start(sum, 0, -1, data.get(), data.get(), stream.handle());
        });
        r.holds(data.floats() == std::vector<float>(floats, 4), "the sum of sums");
        const OnDevice theirs(r.rank, std::vector<float>(floats));
        both(2, [&] {
            return r.comm->offload().start(
                {send_of(data, floats, 1 - r.rank, 3), receive_of(theirs, floats, 1 - r.rank, 3)},
                -1, stream.handle());
        });
        r.holds(theirs.floats() == std::vector<float>(floats, 4), "the message");
    });
}

TEST_CASE("staged messages: what cannot be is said before anything is launched") {
    run(staged_job(2), [](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(100, 1)),
            other(r.rank + 2, std::vector<float>(100, 1));
        r.fails(both_ways(r, {send_of(data, 100, 2)}), Code::invalid, "out of range");
        r.fails(both_ways(r, {send_of(data, 100, 1 - r.rank, -3)}), Code::invalid, "negative");
        r.fails(both_ways(r, {send_of(other, 100, 0)}), Code::invalid, "memory of device");
        std::vector<float> host(1 << 20, 1);
        OffloadMessage mixed = send_of(data, 100, 1 - r.rank);
        mixed.memory = reinterpret_cast<std::byte*>(host.data());
        r.fails(both_ways(r, {mixed}), Code::invalid, "host memory");
        const device::DeviceStream theirs = std::move(
            *device::DeviceStream::create(*device::Context::retain(*device::driver(), r.rank + 2)));
        r.fails(both_ways(r, {send_of(data, 100, 1 - r.rank)}, -1, theirs.handle()), Code::invalid,
                "stream");
        ring(r, 100);
    });
}
