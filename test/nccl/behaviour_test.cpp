// Order, errors and ends of operations on device memory.
#include <atomic>
#include <chrono>

#include "cuda/held_stream.h"
#include "nccl/job.h"

using namespace gpu_test;

namespace {

/// The communicator works, on both kinds of memory.
void still_works(Ranked& r, void* stream = nullptr) {
    const OnDevice in(r.rank, std::vector<float>(100, 1)), out(r.rank, std::vector<float>(100));
    r.works(r.finish(r.comm->calls().start(sum100, -1, -1, in.get(), out.get(), stream)),
            "afterwards");
    r.holds(out.floats()[99] == static_cast<float>(r.size), "afterwards: the values");
    std::vector<float> host(100, 1);
    r.works(r.comm->calls().run(sum100, host.data(), host.data()), "afterwards, on the host");
    r.holds(host[0] == static_cast<float>(r.size), "afterwards: the host's values");
}

/// A rank that does not call, until the others have heard so.
void stay_away(const std::atomic<bool>& heard) {
    for (int i = 0; i < 20'000 && !heard; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

TEST_CASE("device streams: the host is not held up, and kernels before and after are in order") {
    for (const char* algorithm : {"", "staged"})
        run({.ranks = 2}, [&](Ranked& r) {
            const device::DeviceStream stream = stream_of(r);
            r.works(r.comm->offload().set_queue(stream.handle()), "set");
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            Call call = sum100;
            call.algorithm = algorithm;
            r.works(r.comm->calls().run(call, data.get(), data.get()), "the first, which joins");
            r.works(r.comm->offload().sync(-1), "sync");
            test::HeldStream held(stream.handle());
            for (int round = 0; round < 2; ++round) {
                fake_cuda_increment(stream.handle(), data.get(), 100, 50'000);
                r.works(r.comm->calls().run(call, data.get(), data.get()), "run");
                fake_cuda_increment(stream.handle(), data.get(), 100, 0);
            }
            r.fails(r.comm->offload().sync(1), Code::timeout, "not done after 1 ms");
            held.let_go();
            r.works(r.comm->offload().sync(-1), "sync");
            fake_cuda_synchronize(stream.handle());
            // 1 → 2, then x → 2 (x + 1) + 1 twice
            r.holds(data.floats() == std::vector<float>(100, 17), "the values");
        });
}

TEST_CASE("device streams: a pair of streams is ordered by calls, not by waiting") {
    run({.ranks = 2}, [](Ranked& r) {
        const device::DeviceStream calc = stream_of(r), own = stream_of(r);
        const auto context = device::Context::retain(*device::driver(), r.rank);
        const device::Context::Scope current(*context);
        r.works(r.comm->offload().set_queue(own.handle()), "set");
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        for (int round = 0; round < 3; ++round) {
            fake_cuda_increment(calc.handle(), data.get(), 100, 20'000);
            r.works(r.comm->offload().hold_own_queue(calc.handle()), "calc first");
            r.works(r.comm->calls().run(sum100, data.get(), data.get()), "run");
            r.works(r.comm->offload().hold_queue(calc.handle()), "then calc");
        }
        fake_cuda_increment(calc.handle(), data.get(), 100, 0);
        fake_cuda_synchronize(calc.handle());
        r.holds(data.floats() == std::vector<float>(100, 23), "x → 2 (x + 1) three times, and 1");
        r.works(r.comm->offload().sync(-1), "sync");
    });
}

TEST_CASE("device streams: two ranks of a process on one GPU need one each") {
    run({.ranks = 2, .change = [](Config& c) { c.device = DeviceMode::staged; }}, [](Ranked& r) {
        static std::barrier together(2);
        const OnDevice data(0, std::vector<float>(100, 1));
        const device::Context context = *device::Context::retain(*device::driver(), 0);
        const device::DeviceStream own = std::move(*device::DeviceStream::create(context));
        const auto start = [&](void* stream) {
            return r.comm->calls().start(sum100, 0, -1, data.get(), data.get(), stream);
        };
        Result<std::unique_ptr<Request>> sum;
        if (r.rank == 0) sum = start(nullptr);
        together.arrive_and_wait();
        if (r.rank == 1) {
            r.fails(start(nullptr), Code::invalid, "rank 0 of this process has an operation");
            sum = start(own.handle());
        }
        r.works(r.finish(std::move(sum)), "on a stream each");
        r.holds(data.floats() == std::vector<float>(100, 2), "the values");
        together.arrive_and_wait();
        // Rank 0's operation has ended, so its stream is free for rank 1.
        if (r.rank == 1) sum = start(nullptr);
        together.arrive_and_wait();
        if (r.rank == 0) sum = start(own.handle());
        r.works(r.finish(std::move(sum)), "the other way round");
    });
}

TEST_CASE("device memory: whatever runs while a program captures a graph leaves that alone") {
    fake_cuda_capture_elsewhere(true);
    for (const DeviceMode way : {DeviceMode::library, DeviceMode::staged})
        run({.ranks = 2, .change = [=](Config& c) { c.device = way; }}, [](Ranked& r) {
            still_works(r);
            sum_between_kernels(r, 1000);
        });
    fake_cuda_capture_elsewhere(false);
}

TEST_CASE("device streams: nothing is put on one that is captured into a graph") {
    for (const DeviceMode way : {DeviceMode::library, DeviceMode::staged})
        run({.ranks = 2, .change = [=](Config& c) { c.device = way; }}, [](Ranked& r) {
            const device::DeviceStream stream = stream_of(r);
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            const std::string words = "is being captured into a CUDA graph";
            const auto refuses = [&] {
                fake_cuda_capture(stream.handle(), true);
                for (void* on : {static_cast<void*>(stream.handle()), static_cast<void*>(nullptr)})
                    r.fails(r.comm->calls().start(sum100, -1, -1, data.get(), data.get(), on),
                            Code::unsupported, words);
            };
            refuses();  // before the ranks have joined, too
            fake_cuda_capture(stream.handle(), false);
            still_works(r, stream.handle());
            refuses();
            r.fails(r.comm->offload().start({{{true, 1 - r.rank, data.get(), 400}}}, -1,
                                            stream.handle()),
                    Code::unsupported, words);
            r.fails(r.comm->offload().hold_own_queue(stream.handle()), Code::unsupported, words);
            fake_cuda_capture(stream.handle(), false);
            still_works(r, stream.handle());
        });
}

TEST_CASE("device memory: plans run on it, blocking and not") {
    run({.ranks = 2}, [](Ranked& r) {
        auto plan = r.comm->calls().make_plan(sum100, 0);
        if (!r.works(plan, "plan")) return;
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        for (int round = 0; round < 3; ++round) {
            r.works(r.finish(r.comm->calls().start(**plan, data.get(), data.get())), "start");
            r.works(r.comm->calls().run(**plan, data.get(), data.get()), "run");
            r.works(r.comm->calls().run(**plan, data.get(), data.get()),
                    "run again, without a sync");
        }
        r.works(r.comm->offload().sync(-1), "sync");
        r.holds(data.floats()[7] == 512, "nine times two");
        std::vector<float> host(100, 1);
        r.works(r.comm->calls().run(**plan, host.data(), host.data()), "on the host");
        r.holds(host[0] == 2, "the host's values");
    });
}

TEST_CASE("device memory: a call asks the driver once for each buffer") {
    run({}, [](Ranked& r) {
        const std::size_t n = 1000;
        const Call sum = call_of(Collective::allreduce, n);
        const OnDevice in(r.rank, values_of(r.rank, n)), out(r.rank, values_of(r.rank, n));
        const auto asks = [&](const void* from, void* to, int times, const std::string& what) {
            const int before = fake_cuda_asked();
            r.works(r.comm->calls().run(sum, from, to), what);
            r.holds(fake_cuda_asked() - before == times,
                    fmt::format("{}: asked {} times", what, fake_cuda_asked() - before));
        };
        // The first call joins, which has questions of its own.
        r.works(r.comm->calls().run(sum, in.get(), out.get()), "first");
        asks(in.get(), out.get(), 2, "two buffers");
        asks(out.get(), out.get(), 1, "in place");
        // So large that it is mapped: the library knows the heap's addresses without a question.
        const std::unique_ptr<void, decltype(&std::free)> host(std::calloc(1 << 26, 1), std::free);
        asks(host.get(), host.get(), 1, "the host's, in place");
    });
}

TEST_CASE("device memory: many operations are under way at a time, over both streams") {
    const Setting fast("FAKE_CUDA_DELAY_US", "20");
    run({.ranks = 2}, [](Ranked& r) {
        constexpr std::size_t most = 40;
        std::vector<std::unique_ptr<OnDevice>> data;
        std::vector<std::unique_ptr<Request>> requests;
        for (std::size_t i = 0; i < most; ++i) {
            data.push_back(std::make_unique<OnDevice>(
                r.rank, std::vector<float>(100, 1.0f + static_cast<float>(i))));
            auto request = r.comm->calls().start(sum100, -1, -1, data[i]->get(), data[i]->get());
            if (!r.works(request, "start")) return;
            requests.push_back(std::move(*request));
        }
        for (std::size_t i = 0; i < most; ++i) {
            r.comm->progress().wait(*requests[i], -1);
            r.holds(requests[i]->code.load() == Code::ok, "a request failed");
            r.holds(data[i]->floats()[99] == 2 * (1.0f + static_cast<float>(i)), "the values");
        }
    });
}

// ---- different calls -------------------------------------------------------------------------

TEST_CASE("mismatch: other operators on devices are found, although NCCL would not notice") {
    run({.ranks = 2}, [](Ranked& r) {
        still_works(r);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        Call call = sum100;
        if (r.rank == 1) call.op = Op::max;
        r.works(r.comm->calls().run(call, data.get(), data.get()), "it is launched");
        r.fails(r.comm->offload().sync(-1), Code::mismatch, "max");
        still_works(r);
    });
}

TEST_CASE("mismatch: other lengths and collectives hang in NCCL, and are ended") {
    for (const bool lengths : {true, false})
        run({.ranks = 3}, [&](Ranked& r) {
            still_works(r);
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            Call call = sum100;
            if (r.rank == 2 && lengths) call.count = 50;
            if (r.rank == 2 && !lengths) call.collective = Collective::broadcast;
            r.fails(r.finish(r.comm->calls().start(call, -1, -1, data.get(), data.get())),
                    Code::mismatch, "collective mismatch");
            still_works(r);
        });
}

TEST_CASE("mismatch: host memory on one rank and a device's on another") {
    run({.ranks = 2}, [](Ranked& r) {
        still_works(r);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        std::vector<float> host(100, 1);
        std::byte* mine = r.rank == 0 ? data.get() : reinterpret_cast<std::byte*>(host.data());
        r.fails(r.finish(r.comm->calls().start(sum100, -1, -1, mine, mine)), Code::mismatch,
                "collective mismatch");
        still_works(r);
    });
}

TEST_CASE("mismatch: the operation before it still succeeds") {
    run({.ranks = 2}, [](Ranked& r) {
        still_works(r);
        const OnDevice first(r.rank, std::vector<float>(100, 1)),
            second(r.rank, std::vector<float>(100, 1));
        const device::DeviceStream stream = stream_of(r);
        fake_cuda_increment(stream.handle(), first.get(), 100, 400'000);
        auto early =
            r.comm->calls().start(sum100, 0, -1, first.get(), first.get(), stream.handle());
        Call call = sum100;
        if (r.rank == 1) call.op = Op::min;
        auto late = r.comm->calls().start(call, 0, -1, second.get(), second.get(), stream.handle());
        r.works(r.finish(std::move(early)), "the earlier one");
        r.holds(first.floats()[5] == 4, "its values");
        r.fails(r.finish(std::move(late)), Code::mismatch, "min");
        still_works(r);
    });
}

TEST_CASE("strict checking: nothing is launched before all called the same") {
    run({.ranks = 2, .change = [](Config& c) { c.check = Check::strict; }}, [](Ranked& r) {
        still_works(r);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        Call call = sum100;
        if (r.rank == 1) call.op = Op::max;
        const auto result = r.comm->calls().run(call, data.get(), data.get());
        r.fails(result, Code::mismatch, "max");
        r.holds(data.floats() == std::vector<float>(100, 1), "the output is untouched");
        still_works(r);
    });
}

// ---- ends ------------------------------------------------------------------------------------

TEST_CASE("deadline: the rank that did not call is named, and NCCL lets go of the buffers") {
    std::atomic<bool> heard{false};
    run({.ranks = 2}, [&](Ranked& r) {
        still_works(r);
        if (r.rank == 1) return stay_away(heard);
        const device::DeviceStream stream = stream_of(r);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        r.fails(r.finish(
                    r.comm->calls().start(sum100, 0, 700, data.get(), data.get(), stream.handle())),
                Code::timeout, "rank 1 has not called it");
        fake_cuda_synchronize(stream.handle());
        r.holds(data.floats() == std::vector<float>(100, 1), "untouched");
        heard = true;
    });
}

TEST_CASE("deadline: of an earlier operation, found while NCCL takes its time with a later one") {
    std::atomic<bool> heard{false};
    const Setting full("FAKE_NCCL_CONNECTS", "2");
    run({.ranks = 2}, [&](Ranked& r) {
        still_works(r);
        if (r.rank == 1) return stay_away(heard);
        const device::DeviceStream stream = stream_of(r);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        const auto start = [&](int64_t timeout_ms) {
            return r.comm->calls().start(sum100, 0, timeout_ms, data.get(), data.get(),
                                         stream.handle());
        };
        auto earlier = start(700);
        r.works(earlier, "the earlier one");
        r.fails(r.finish(start(60'000)), Code::timeout, "rank 1 has not called it");
        r.fails(r.finish(std::move(earlier)), Code::timeout, "rank 1 has not called it");
        heard = true;
    });
}

TEST_CASE("abort: ends what is on the device, from another thread") {
    std::atomic<int> ready{0};
    run({.ranks = 2}, [&](Ranked& r) {
        still_works(r);
        ++ready;
        if (r.rank == 1) {
            wait_for(ready, 2);
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return r.comm->abort();
        }
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        r.fails(r.finish(r.comm->calls().start(sum100, -1, -1, data.get(), data.get())),
                Code::aborted, "rank 1 called tutti_comm_abort");
    });
}

TEST_CASE("abort: the buffers are the caller's again only when NCCL's kernels have ended") {
    std::atomic<bool> heard{false};
    run({.ranks = 2}, [&](Ranked& r) {
        still_works(r);
        if (r.rank == 1) return stay_away(heard);
        const Told slow(fake_slow_abort, 0);
        const device::DeviceStream stream = stream_of(r);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        r.fails(r.finish(
                    r.comm->calls().start(sum100, 0, 300, data.get(), data.get(), stream.handle())),
                Code::timeout, "rank 1 has not called it");
        const auto then = data.bytes();
        fake_cuda_synchronize(stream.handle());
        r.holds(data.bytes() == then, "written to afterwards");
        heard = true;
    });
}

TEST_CASE("errors: NCCL's own end the operation on all ranks with its words") {
    for (const int what : {fake_fail_launch, fake_break_down}) {
        std::atomic<int> ready{0};
        run({.ranks = 2}, [&](Ranked& r) {
            still_works(r);
            ++ready;
            wait_for(ready, 2);
            fake_cuda_tell(what, 1);
            const device::DeviceStream stream = stream_of(r);
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            fake_cuda_increment(stream.handle(), data.get(), 100, 100'000);
            r.fails(r.finish(r.comm->calls().start(sum100, 0, -1, data.get(), data.get(),
                                                   stream.handle())),
                    Code::system, "internal error: the stand-in was told to fail");
            fake_cuda_synchronize(stream.handle());
        });
        fake_cuda_tell(what, -1);
    }
}

TEST_CASE("errors: a launch that fails as a peer has gone waits for the name of it") {
    Error error;
    // It waits for a second. On a busy machine rank 1 may be slower than that, but hardly each
    // time.
    for (int attempt = 0; attempt < 5 && error.code != Code::aborted; ++attempt) {
        std::atomic<int> launches{0};
        run({.ranks = 2}, [&](Ranked& r) {
            still_works(r);
            if (r.rank == 1) {
                wait_for(launches, 1);
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                return r.comm->abort();
            }
            const Told lose(fake_lose_launch, 0);
            ++launches;
            const OnDevice data(r.rank, std::vector<float>(100, 1));
            const auto failed =
                r.finish(r.comm->calls().start(sum100, 0, -1, data.get(), data.get()));
            if (r.holds(!failed, "expected to fail")) error = failed.error();
        });
    }
    INFO(error.message);
    REQUIRE(error.code == Code::aborted);
    REQUIRE(error.message.find("rank 1 called tutti_comm_abort") != std::string::npos);
}

TEST_CASE("errors: a broken device fails the operation, and the host's communicators go on") {
    run({.ranks = 2}, [](Ranked& r) {
        still_works(r);
        Config other = *r.config;
        other.job = "host only";
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        if (r.rank == 0) fake_cuda_break(0, 700);
        const auto failed = r.finish(r.comm->calls().start(sum100, -1, -1, data.get(), data.get()));
        r.fails(failed, Code::system, "CUDA_ERROR_ILLEGAL_ADDRESS");
        auto host = Communicator::create(other, nullptr);
        if (!r.works(host, "a new communicator")) return;
        std::vector<float> values(100, 1);
        r.works((*host)->calls().run(sum100, values.data(), values.data()), "on the host");
        r.holds(values[0] == 2, "its values");
        (*host)->destroy();
    });
    fake_cuda_break(0, 0);
}

// The program's context is current, as it is where a program has chosen a device.
TEST_CASE("errors: a buffer of a device that has failed is not taken for the host's") {
    run({.ranks = 2}, [](Ranked& r) {
        still_works(r);
        static std::barrier together(2);
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        const device::Context::Scope current(*device::Context::retain(*device::driver(), r.rank));
        together.arrive_and_wait();
        fake_cuda_break(r.rank, 700);
        const std::string words = "CUDA_ERROR_ILLEGAL_ADDRESS";
        r.fails(r.comm->calls().run(sum100, data.get(), data.get()), Code::system, words);
        r.fails(r.comm->offload().run({{{true, 1 - r.rank, data.get(), 400}}}), Code::system,
                words);
        together.arrive_and_wait();
        fake_cuda_break(r.rank, 0);
        still_works(r);
    });
}

TEST_CASE("errors: ranks with host memory only join, measure and split beside a broken device") {
    run({.ranks = 3}, [](Ranked& r) {
        static std::barrier together(3);
        const device::Context::Scope current(*device::Context::retain(*device::driver(), r.rank));
        together.arrive_and_wait();
        fake_cuda_break(r.rank, 700);
        Config other = *r.config;
        other.job = "host only";
        other.fit_ms = 1;
        other.transports = {"inproc", "tcp"};
        other.host_id = fmt::format("acted-{}", r.rank / 2);  // whom each rank has to tell
        auto host = Communicator::create(other, nullptr);
        if (r.works(host, "a new communicator")) {
            auto part = (*host)->split(0, r.rank);
            float value = 1;
            if (r.works(part, "split"))
                r.works((*part)->calls().run(call_of(Collective::allreduce, 1), &value, &value),
                        "sum");
            r.holds(value == 3, "the sum");
            if (part) (*part)->destroy();
            (*host)->destroy();
        }
        together.arrive_and_wait();
        fake_cuda_break(r.rank, 0);
    });
}

// ---- wrong buffers ---------------------------------------------------------------------------

TEST_CASE("bad input: mixed buffers, other devices, other devices' streams") {
    run({.ranks = 2}, [](Ranked& r) {
        std::vector<float> host(1 << 20);
        const OnDevice own(r.rank, host), other(r.rank + 2, std::vector<float>(100));
        r.fails(r.comm->calls().run(sum100, host.data(), own.get()), Code::invalid,
                fmt::format("the input is in host memory, the output is in memory of device {}",
                            r.rank));
        r.fails(r.comm->calls().start(sum100, -1, -1, own.get(), other.get()), Code::invalid,
                "put both buffers on one GPU");
        still_works(r);
        r.fails(
            r.comm->calls().run(sum100, other.get(), other.get()), Code::invalid,
            fmt::format("the buffers are in memory of device {}, but the communicator's device is "
                        "{}",
                        r.rank + 2, r.rank));
        const auto context = device::Context::retain(*device::driver(), r.rank + 2);
        const auto stream = device::DeviceStream::create(*context);
        r.fails(r.comm->calls().start(sum100, -1, -1, own.get(), own.get(), stream->handle()),
                Code::invalid, fmt::format("the device stream belongs to device {}", r.rank + 2));
        r.fails(r.comm->offload().set_queue(stream->handle()), Code::invalid,
                "device stream belongs");
        Call named = sum100;
        named.algorithm = "ring";
        r.fails(r.comm->calls().start(named, -1, -1, own.get(), own.get()), Code::unsupported,
                "no algorithm 'ring'");
        named.algorithm = "nccl";
        named.op = Op::max;
        named.dtype = Dtype::int16;
        r.fails(r.comm->calls().start(named, -1, -1, own.get(), own.get()), Code::unsupported,
                "int16");
        still_works(r);
    });
}

TEST_CASE("bad input: two ranks on one GPU are both named") {
    run({.ranks = 3}, [](Ranked& r) {
        const OnDevice data(r.rank / 2, std::vector<float>(100, 1));
        r.fails(r.comm->calls().run(sum100, data.get(), data.get()), Code::unsupported,
                "ranks 0 and 1 both use the GPU 0000:10:00.0");
        std::vector<float> host(100, 1);
        r.works(r.comm->calls().run(sum100, host.data(), host.data()), "the host goes on");
    });
}

TEST_CASE("bad input: joining fails on one rank, all hear of it, the host goes on") {
    const Setting fail("FAKE_NCCL_FAIL_JOIN", "1");
    run({.ranks = 2}, [](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        r.fails(r.comm->calls().run(sum100, data.get(), data.get()), Code::system,
                r.rank == 1 ? "internal error" : "another rank could not join");
        std::vector<float> host(100, 1);
        r.works(r.comm->calls().run(sum100, host.data(), host.data()), "the host goes on");
    });
}
