// Device memory in tiles through the host: the same values as in one piece, copies beside copies,
// little pinned memory, and every dependency needed.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "nccl/job.h"

using namespace gpu_test;

namespace {

const Job tiled_job{.ranks = 2, .change = [](Config& c) {
                        c.device = DeviceMode::staged;
                        c.device_tile_bytes = tile_bytes;
                    }};
// A dozen of the schedules' own tiles, and a part of one.
constexpr std::size_t count = 1500 * 1000 + 7;

std::vector<float> sums_of(Rank ranks, std::size_t length) {
    std::vector<float> sums(length);
    for (Rank r = 0; r < ranks; ++r) {
        const auto values = values_of(r, length);
        std::transform(sums.begin(), sums.end(), values.begin(), sums.begin(), std::plus());
    }
    return sums;
}

}  // namespace

TEST_CASE("tiles: every collective that has them equals the host's") {
    const Setting fast("FAKE_CUDA_DELAY_US", "20");
    for (const Rank ranks :
         tutti::test::sanitized ? std::vector<Rank>{2} : std::vector<Rank>{1, 2, 4}) {
        Job job = tiled_job;
        job.ranks = ranks;
        run(job, [](Ranked& r) {
            using enum Collective;
            const auto n = static_cast<std::size_t>(r.size);
            for (const Collective c : {allreduce, reduce, broadcast, scan, exscan})
                compare_floats(r, call_of(c, count, Dtype::float32, Op::sum, r.size - 1), count,
                               count);
            const std::size_t block = count / 4;
            compare_floats(r, call_of(allgather, block), block, block * n);
            compare_floats(r, call_of(reduce_scatter, block), block * n, block);
        });
    }
}

TEST_CASE("tiles: other types and operators") {
    const Setting fast("FAKE_CUDA_DELAY_US", "20");
    run(tiled_job, [](Ranked& r) {
        for (const Dtype dtype : {Dtype::float64, Dtype::bfloat16, Dtype::int8})
            for (const Op op : {Op::avg, Op::max}) {
                const std::size_t length = count * dtype_bytes(dtype);
                const std::vector<std::byte> in(length, std::byte{static_cast<uint8_t>(r.rank)});
                std::vector<std::byte> expected(length);
                const OnDevice input(r.rank, in), output(r.rank, expected);
                const Call call = call_of(Collective::allreduce, count, dtype, op);
                r.works(r.comm->calls().run(call, in.data(), expected.data()), "on the host");
                r.works(r.finish(r.comm->calls().start(call, -1, -1, input.get(), output.get())),
                        "tiled");
                r.holds(output.bytes() == expected, std::string(dtype_name(dtype)));
            }
    });
}

TEST_CASE("tiles: in place, one after the other, behind a kernel and before one") {
    run(tiled_job, [](Ranked& r) { sum_between_kernels(r, count); });
}

TEST_CASE("tiles: copies from the device and to it run side by side, in little pinned memory") {
    // Longer than what a busy machine puts between them.
    const Setting slow("FAKE_CUDA_DELAY_US", "1000");
    const int before = fake_cuda_overlaps(0);
    (void)fake_cuda_most_pinned();
    // On a busy machine they can, and do not always; under a sanitizer, seldom.
    for (int round = 0; round < most_rounds && fake_cuda_overlaps(0) - before < 3; ++round)
        run(tiled_job, [](Ranked& r) {
            const OnDevice data(r.rank, values_of(r.rank, count));
            r.works(r.finish(r.comm->calls().start(call_of(Collective::allreduce, count), -1, -1,
                                                   data.get(), data.get())),
                    "allreduce");
            r.holds(data.floats() == sums_of(r.size, count), "the sums");
        });
    INFO("overlaps: " << fake_cuda_overlaps(0) - before);
    REQUIRE((tutti::test::sanitized || fake_cuda_overlaps(0) - before >= 3));
    // Both ranks together pin less than one whole message.
    REQUIRE(fake_cuda_most_pinned() < count * sizeof(float));
    const int whole = fake_cuda_overlaps(0);
    Job job = tiled_job;
    job.change = [](Config& c) {
        c.device = DeviceMode::staged;
        c.device_tile_bytes = std::size_t{1} << 30;
    };
    run(job, [](Ranked& r) {
        const OnDevice data(r.rank, values_of(r.rank, count));
        r.works(r.finish(r.comm->calls().start(call_of(Collective::allreduce, count), -1, -1,
                                               data.get(), data.get())),
                "in one piece");
    });
    REQUIRE(fake_cuda_overlaps(0) == whole);
}

#ifndef __SANITIZE_THREAD__  // a race on purpose
TEST_CASE("tiles: a stream that does not wait gives other values, so nobody waits in vain") {
    for (const int what : {fake_drop_events, fake_drop_words}) {
        const Told drop(what, 1);
        run(tiled_job, [](Ranked& r) {
            const device::DeviceStream stream = stream_of(r);
            const OnDevice data(r.rank, values_of(r.rank, count));
            fake_cuda_increment(stream.handle(), data.get(), count, 50'000);
            r.works(r.finish(r.comm->calls().start(call_of(Collective::allreduce, count), -1, -1,
                                                   data.get(), data.get(), stream.handle())),
                    "allreduce");
            fake_cuda_synchronize(stream.handle());
            std::vector<float> wanted = sums_of(r.size, count);
            for (float& v : wanted) v += static_cast<float>(r.size);
            if (r.rank == 1) r.holds(data.floats() != wanted, "the wait was not needed");
        });
    }
}
#endif

TEST_CASE("tiles: host memory on one rank, and different kinds on another") {
    run(tiled_job, [](Ranked& r) {
        const auto mine = values_of(r.rank, count);
        std::vector<float> host(count);
        const OnDevice in(r.rank, mine), out(r.rank, std::vector<float>(count));
        const Call call = call_of(Collective::allreduce, count);
        const auto wanted = sums_of(r.size, count);
        for (int round = 0; round < 4; ++round) {
            const bool from_host = (round + r.rank) % 4 < 2, to_host = (round + r.rank) % 2 == 0;
            const void* source = from_host ? static_cast<const void*>(mine.data()) : in.get();
            void* target = to_host ? static_cast<void*>(host.data()) : out.get();
            r.works(r.comm->calls().run(call, source, target), "run");
            r.works(r.comm->offload().sync(-1), "sync");
            r.holds((to_host ? host : out.floats()) == wanted, "the sums");
        }
    });
}

TEST_CASE("tiles: a different call is found, a rank that does not come is named, all goes on") {
    std::atomic<bool> heard{false};
    run(tiled_job, [&](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(count, 1));
        Call call = call_of(Collective::allreduce, count);
        if (r.rank == 1) call.op = Op::max;
        r.fails(r.finish(r.comm->calls().start(call, 0, -1, data.get(), data.get())),
                Code::mismatch, "collective mismatch");
        const OnDevice again(r.rank, std::vector<float>(count, 1));
        call.op = Op::sum;
        r.works(r.finish(r.comm->calls().start(call, 0, -1, again.get(), again.get())),
                "it goes on");
        r.holds(again.floats() == std::vector<float>(count, 2), "the sums");
        if (r.rank == 1) {
            for (int i = 0; i < 20'000 && !heard; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
        }
        const device::DeviceStream stream = stream_of(r);
        r.fails(r.finish(
                    r.comm->calls().start(call, 0, 500, again.get(), again.get(), stream.handle())),
                Code::timeout, "rank 1 has not called it");
        fake_cuda_synchronize(stream.handle());
        heard = true;
    });
}

TEST_CASE("tiles: a device that breaks in the middle ends the call with the driver's words") {
    std::atomic<int> through{0};
    run(tiled_job, [&](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(count, 1));
        const Call call = call_of(Collective::allreduce, count);
        r.works(r.finish(r.comm->calls().start(call, 0, -1, data.get(), data.get())), "the first");
        ++through;
        for (int i = 0; i < 20'000 && through < 2; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const device::DeviceStream stream = stream_of(r);
        fake_cuda_increment(stream.handle(), data.get(), count, 60'000);
        auto request = r.comm->calls().start(call, 0, -1, data.get(), data.get(), stream.handle());
        if (r.rank == 0) fake_cuda_break(0, 700);
        r.fails(r.finish(std::move(request)), Code::system, "CUDA_ERROR_ILLEGAL_ADDRESS");
    });
    fake_cuda_break(0, 0);
}
