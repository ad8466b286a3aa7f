// Device memory over several hosts: the devices' library within each, tutti's wire between them.
// Hosts are acted; each has stand-in devices of its own.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "gpu/device_group_batch.h"
#include "nccl/messages.h"

using namespace gpu_test;

namespace {

void compare_whole(Ranked& r, std::string_view algorithm, std::size_t count) {
    for (const Collective c : {Collective::allreduce, Collective::broadcast}) {
        Call call = call_of(c, count, Dtype::float32, Op::sum,
                            static_cast<Rank>(count) % 2 == 0 ? 0 : r.size - 1);
        call.algorithm = algorithm;
        compare_floats(r, call, count, count);
    }
}

void compare_all(Ranked& r, std::string_view algorithm) {
    using enum Collective;
    const auto n = static_cast<std::size_t>(r.size);
    for (const std::size_t count : {1, 2, 1001, 600'007}) {
        compare_whole(r, algorithm, count);
        const std::size_t block = count / 4 + 1;
        Call gather = call_of(allgather, block), scatter = call_of(reduce_scatter, block);
        gather.algorithm = scatter.algorithm = algorithm;
        compare_floats(r, gather, block, block * n);
        compare_floats(r, scatter, block * n, block);
    }
}

const Call sum5000 = call_of(Collective::allreduce, 5000);

void hosts_still_work(Ranked& r) {
    const OnDevice data(r.rank, std::vector<float>(5000, 1));
    Call call = sum5000;
    r.works(r.finish(r.comm->calls().start(call, -1, -1, data.get(), data.get())), "afterwards");
    r.holds(data.floats() == std::vector<float>(5000, static_cast<float>(r.size)), "its sums");
}

}  // namespace

TEST_CASE("hosts: every collective that has the hierarchical way equals the host's") {
    const Setting fast("FAKE_CUDA_DELAY_US", "10");
    const Setting devices("FAKE_CUDA_DEVICES", "8");
    std::vector<std::vector<int>> layouts = {
        {0, 1, 1, 0}, {0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 1, 1, 1}};
    if (tutti::test::sanitized) layouts.resize(1);
    for (const std::vector<int>& hosts : layouts)
        run(job_on(hosts), [](Ranked& r) { compare_all(r, "hierarchical"); });
}

TEST_CASE("hosts: other operators and types, and what goes through the host all the same") {
    const Setting fast("FAKE_CUDA_DELAY_US", "10");
    run(job_on({0, 0, 1, 1}), [](Ranked& r) {
        for (const Op op : {Op::avg, Op::max, Op::min, Op::prod, Op::sum})
            compare_floats(r, call_of(Collective::allreduce, 3001, Dtype::float32, op), 3001, 3001);
        const float factor = static_cast<float>(r.rank + 1);
        const auto premul = r.comm->planner().make_premul_sum(&factor, Dtype::float32);
        if (!r.works(premul, "premul")) return;
        compare_floats(r, call_of(Collective::allreduce, 3001, Dtype::float32, *premul), 3001,
                       3001);
        (void)remove_operator(*premul);
        compare_floats(r, call_of(Collective::scan, 3001), 3001, 3001);
        compare_floats(r, call_of(Collective::reduce, 3001), 3001, 3001);
        Call wanted = call_of(Collective::scan, 3001);
        wanted.algorithm = "hierarchical";
        const OnDevice data(r.rank, values_of(r.rank, 3001));
        r.fails(r.comm->calls().start(wanted, -1, -1, data.get(), data.get()), Code::unsupported,
                "no hierarchical algorithm");
        wanted.algorithm = "nccl";
        r.fails(r.comm->calls().start(wanted, -1, -1, data.get(), data.get()), Code::unsupported,
                "no algorithm 'nccl'. What to do: name 'hierarchical' or 'staged'");
        hosts_still_work(r);
    });
}

// Hosts of one rank among others, whose ranks share the stripes evenly, with and without a rest.
TEST_CASE("hosts: uneven ones go the hierarchical way with whole messages") {
    const Setting fast("FAKE_CUDA_DELAY_US", "10");
    const Setting devices("FAKE_CUDA_DEVICES", "8");
    std::vector<std::vector<int>> layouts = {
        {0, 0, 1},       {0, 0, 0, 1, 1},       {0, 1, 0, 2, 1, 0},
        {0, 1, 1, 1, 1}, {0, 0, 0, 0, 1, 1, 1}, {0, 1, 1, 2, 2}};
    if (tutti::test::sanitized) layouts.resize(1);
    for (const std::vector<int>& hosts : layouts)
        run(job_on(hosts), [](Ranked& r) {
            for (const std::size_t count : {1, 2, 11, 1001, 9998, 600'007})
                compare_whole(r, "hierarchical", count);
            Call blocks = call_of(Collective::allgather, 1000);
            compare_floats(r, blocks, 1000, 1000 * static_cast<std::size_t>(r.size));
            blocks.algorithm = "hierarchical";
            const OnDevice data(r.rank, std::vector<float>(1000, 1)),
                all(r.rank, std::vector<float>(1000 * static_cast<std::size_t>(r.size)));
            r.fails(r.comm->calls().start(blocks, -1, -1, data.get(), all.get()), Code::unsupported,
                    "different numbers of ranks");
            hosts_still_work(r);
        });
}

// Five and seven ranks have no number of stripes in common that is worth it: some carry more.
// Hidden, as twelve ranks take long to find each other on a busy machine.
TEST_CASE("hosts: uneven ones whose ranks cannot share evenly", "[.many]") {
    if (tutti::test::sanitized) return;
    const Setting fast("FAKE_CUDA_DELAY_US", "10");
    const Setting devices("FAKE_CUDA_DEVICES", "12");
    run(job_on({0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}), [](Ranked& r) {
        for (const std::size_t count : {3, 1001, 300'001}) compare_whole(r, "hierarchical", count);
    });
}

TEST_CASE("hosts: uneven ones in place behind a kernel, several under way, other operators") {
    const Setting devices("FAKE_CUDA_DEVICES", "8");
    run(job_on({0, 0, 1, 1, 1}), [](Ranked& r) {
        sum_between_kernels(r, 300'003);
        for (const Op op : {Op::avg, Op::max, Op::prod})
            compare_floats(r, call_of(Collective::allreduce, 3001, Dtype::float32, op), 3001, 3001);
    });
}

TEST_CASE("hosts: uneven ones find different calls, and all goes on") {
    run(job_on({0, 0, 1}), [](Ranked& r) {
        hosts_still_work(r);
        const OnDevice data(r.rank, std::vector<float>(5000, 1));
        Call call = sum5000;
        if (r.rank == 2) call.count = 4000;
        r.fails(r.finish(r.comm->calls().start(call, -1, -1, data.get(), data.get())),
                Code::mismatch, "collective mismatch");
        hosts_still_work(r);
    });
}

TEST_CASE("hosts: single ranks go through the host, one host by its library") {
    const Setting fast("FAKE_CUDA_DELAY_US", "10");
    std::vector<std::vector<int>> layouts = {{0, 1, 2}, {0, 0, 0}};
    if (tutti::test::sanitized) layouts.resize(1);
    for (const std::vector<int>& hosts : layouts)
        run(job_on(hosts), [](Ranked& r) { compare_all(r, ""); });
    run(job_on({0, 1}), [](Ranked& r) {
        Call call = sum5000;
        call.algorithm = "hierarchical";
        const OnDevice data(r.rank, std::vector<float>(5000, 1));
        r.fails(r.comm->calls().start(call, -1, -1, data.get(), data.get()), Code::unsupported,
                "no algorithm 'hierarchical'");
        hosts_still_work(r);
    });
}

TEST_CASE("hosts: behind a kernel, in place, several under way, in order of the stream") {
    run(job_on({0, 0, 1, 1}), [](Ranked& r) { sum_between_kernels(r, 700'003); });
}

TEST_CASE("hosts: two operations at a time, on both streams") {
    run(job_on({0, 0, 1, 1}), [](Ranked& r) {
        constexpr std::size_t count = 600'000;
        const OnDevice a(r.rank, std::vector<float>(count, 1)),
            b(r.rank, std::vector<float>(count, 2));
        const Call call = call_of(Collective::allreduce, count);
        for (int round = 0; round < 2; ++round) {
            auto first = r.comm->calls().start(call, 0, -1, a.get(), a.get());
            auto second = r.comm->calls().start(call, 1, -1, b.get(), b.get());
            r.works(r.finish(std::move(first)), "the first");
            r.works(r.finish(std::move(second)), "the second");
        }
        r.holds(a.floats() == std::vector<float>(count, 16), "the first's values");
        r.holds(b.floats() == std::vector<float>(count, 32), "the second's values");
    });
}

TEST_CASE("hosts: copies run side by side, and the wire has a share only") {
    // Longer than what a busy machine puts between them.
    const Setting slow("FAKE_CUDA_DELAY_US", "1000");
    const int before = fake_cuda_overlaps(0);
    // On a busy machine they can, and do not always; under a sanitizer, seldom.
    for (int round = 0; round < most_rounds && fake_cuda_overlaps(0) - before < 2; ++round)
        run(job_on({0, 0, 1, 1}), [](Ranked& r) {
            constexpr std::size_t count = 3'000'000;
            const OnDevice data(r.rank, std::vector<float>(count, 1));
            const Call call = call_of(Collective::allreduce, count);
            r.works(r.finish(r.comm->calls().start(call, 0, -1, data.get(), data.get())),
                    "allreduce");
            r.holds(data.floats() == std::vector<float>(count, 4), "the values");
        });
    REQUIRE((tutti::test::sanitized || fake_cuda_overlaps(0) - before >= 2));
}

// ---- other calls, other ranks ----------------------------------------------------------------

TEST_CASE("hosts: different calls are found wherever they are, and all goes on") {
    for (const Rank odd : {1, 2})
        run(job_on({0, 0, 1, 1}), [odd](Ranked& r) {
            hosts_still_work(r);
            const OnDevice data(r.rank, std::vector<float>(5000, 1));
            Call call = sum5000;
            if (r.rank == odd) call.op = Op::max;
            r.fails(r.finish(r.comm->calls().start(call, -1, -1, data.get(), data.get())),
                    Code::mismatch, "collective mismatch");
            hosts_still_work(r);
            if (r.rank == odd) call.count = 4000;
            r.fails(r.finish(r.comm->calls().start(call, -1, -1, data.get(), data.get())),
                    Code::mismatch, "collective mismatch");
            hosts_still_work(r);
        });
}

TEST_CASE("hosts: a rank that does not come is named, and the buffers are let go") {
    // Rank 0 has the short deadline and calls when the others have, so that only rank 3 is missing.
    std::atomic<int> called{0}, heard{0};
    run(job_on({0, 0, 1, 1}), [&](Ranked& r) {
        hosts_still_work(r);
        if (r.rank == 3) return wait_for(heard, 3);
        const device::DeviceStream stream = stream_of(r);
        const OnDevice data(r.rank, std::vector<float>(5000, 1));
        if (r.rank == 0) wait_for(called, 2);
        auto started = r.comm->calls().start(sum5000, 0, r.rank == 0 ? 700 : -1, data.get(),
                                             data.get(), stream.handle());
        ++called;
        r.fails(r.finish(std::move(started)), Code::timeout, "rank 3 has not called it");
        fake_cuda_synchronize(stream.handle());
        ++heard;
    });
}

TEST_CASE("hosts: an abort, NCCL's errors and a broken device end it everywhere") {
    for (const int what :
         {-1, static_cast<int>(fake_fail_launch), static_cast<int>(fake_break_down)}) {
        std::atomic<int> ready{0};
        run(job_on({0, 0, 1, 1}), [&](Ranked& r) {
            hosts_still_work(r);
            ++ready;
            for (int i = 0; i < 20'000 && ready < 4; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            const device::DeviceStream stream = stream_of(r);
            const OnDevice data(r.rank, std::vector<float>(5000, 1));
            // Ranks of the stand-in's are those of a host.
            if (what >= 0 && r.rank == 1) fake_cuda_tell(what, 1);
            if (what < 0 && r.rank == 1) return r.comm->abort();
            fake_cuda_increment(stream.handle(), data.get(), 5000, 100'000);
            const auto failed = r.finish(
                r.comm->calls().start(sum5000, 0, -1, data.get(), data.get(), stream.handle()));
            r.fails(failed, what < 0 ? Code::aborted : Code::system,
                    what < 0 ? "rank 1 called tutti_comm_abort" : "internal error");
            fake_cuda_synchronize(stream.handle());
        });
        if (what >= 0) fake_cuda_tell(what, -1);
    }
}

TEST_CASE("hosts: strict checking launches nothing before all called the same") {
    Job job = job_on({0, 0, 1, 1});
    job.change = [change = job.change](Config& c) {
        change(c);
        c.check = Check::strict;
    };
    run(job, [](Ranked& r) {
        hosts_still_work(r);
        const OnDevice data(r.rank, std::vector<float>(5000, 1));
        Call call = sum5000;
        if (r.rank == 1) call.op = Op::max;
        r.fails(r.comm->calls().run(call, data.get(), data.get()), Code::mismatch, "max");
        r.holds(data.floats() == std::vector<float>(5000, 1), "the output is untouched");
        hosts_still_work(r);
    });
}

// ---- one thread for several ranks ------------------------------------------------------------

// So that a share is one tile, several, and one with a rest that makes one more for its carrier.
TEST_CASE("hosts: one thread calls for several ranks, several times") {
    const Setting devices("FAKE_CUDA_DEVICES", "8");
    for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, {0, 0, 1}, {0, 1, 1, 1, 0}})
        by_one_thread(job_on(hosts), [](const std::vector<Ranked*>& all) {
            Ranked& first = *all[0];
            const auto n = all.size();
            for (const std::size_t count :
                 {std::size_t{10}, 2 * tile_bytes / 4 + 1, std::size_t{50'003}}) {
                std::vector<std::unique_ptr<OnDevice>> data, gathered;
                std::vector<std::vector<float>> values;
                std::vector<float> sum(count), blocks;
                for (Ranked* r : all) {
                    values.push_back(values_of(r->rank, count));
                    data.push_back(std::make_unique<OnDevice>(r->rank, values.back()));
                    gathered.push_back(
                        std::make_unique<OnDevice>(r->rank, std::vector<float>(n * count)));
                    for (std::size_t i = 0; i < count; ++i) sum[i] += values.back()[i];
                }
                for (std::size_t i = 0; i < n; ++i)
                    blocks.insert(blocks.end(), sum.begin(), sum.end());
                DeviceGroupBatch::here().open();
                for (std::size_t i = 0; i < n; ++i) {
                    Communicator& comm = *all[i]->comm;
                    first.works(comm.calls().run(call_of(Collective::allreduce, count),
                                                 data[i]->get(), data[i]->get()),
                                "allreduce");
                    first.works(comm.calls().run(call_of(Collective::broadcast, count,
                                                         Dtype::float32, Op::sum, all.back()->rank),
                                                 data[i]->get(), data[i]->get()),
                                "broadcast");
                    first.works(comm.calls().run(call_of(Collective::allgather, count),
                                                 data[i]->get(), gathered[i]->get()),
                                "allgather");
                }
                first.works(DeviceGroupBatch::here().close(), "launch");
                for (std::size_t i = 0; i < n; ++i) {
                    first.works(all[i]->comm->offload().sync(-1), "sync");
                    first.holds(data[i]->floats() == sum, "the sums");
                    first.holds(gathered[i]->floats() == blocks, "the blocks");
                }
            }
        });
}

TEST_CASE("hosts: one thread calls messages before and behind what comes in parts") {
    Job job = job_on({0, 0, 1, 1});
    job.change = [all = job.change](Config& c) {
        all(c);
        c.timeout_ms = 30'000;
    };
    by_one_thread(job, [](const std::vector<Ranked*>& all) {
        Ranked& first = *all[0];
        std::vector<std::unique_ptr<OnDevice>> data;
        const OnDevice sent(0, values_of(0, 100)), got(1, std::vector<float>(100));
        DeviceGroupBatch::here().open();
        first.works(first.comm->offload().run({send_of(sent, 100, 1)}), "send");
        for (Ranked* r : all) {
            data.push_back(std::make_unique<OnDevice>(r->rank, std::vector<float>(5000, 1)));
            first.works(r->comm->calls().run(sum5000, data.back()->get(), data.back()->get()),
                        "run");
        }
        first.works(all[1]->comm->offload().run({receive_of(got, 100, 0)}), "receive");
        first.works(DeviceGroupBatch::here().close(), "launch");
        for (Ranked* r : all) first.works(r->comm->offload().sync(-1), "sync");
        first.holds(got.floats() == values_of(0, 100), "the message");
        for (const auto& each : data)
            first.holds(each->floats() == std::vector<float>(5000, 4), "the sums");
    });
}

TEST_CASE("hosts: what one thread calls fails on all its ranks, whatever part of it did") {
    by_one_thread(job_on({0, 0, 1, 1}), [](const std::vector<Ranked*>& all) {
        Ranked& first = *all[0];
        std::vector<std::unique_ptr<OnDevice>> data;
        const Told refuse(fake_fail_launch, 1);
        DeviceGroupBatch::here().open();
        for (Ranked* r : all) {
            data.push_back(std::make_unique<OnDevice>(r->rank, std::vector<float>(5000, 1)));
            first.works(r->comm->calls().run(sum5000, data.back()->get(), data.back()->get()),
                        "run");
        }
        first.fails(DeviceGroupBatch::here().close(), Code::system, "internal error");
        for (Ranked* r : all) first.holds(!r->comm->offload().sync(-1), "all fail");
    });
}

// ---- who decides -----------------------------------------------------------------------------

TEST_CASE("auto: one library for all where all can join it") {
    run(job_on({0, 0, 1, 1}, DeviceMode::automatic), [](Ranked& r) {
        hosts_still_work(r);
        Call call = sum5000;
        call.algorithm = "nccl";
        const OnDevice data(r.rank, std::vector<float>(5000, 1));
        r.works(r.finish(r.comm->calls().start(call, -1, -1, data.get(), data.get())), "by NCCL");
    });
}

TEST_CASE("hosts: two ranks of a host on one GPU are both named") {
    run(job_on({0, 0, 1, 1}), [](Ranked& r) {
        const OnDevice data(r.rank / 2, std::vector<float>(5000, 1));
        r.fails(r.comm->calls().run(sum5000, data.get(), data.get()), Code::unsupported,
                "ranks 0 and 1 both use the GPU 0000:10:00.0");
    });
}
