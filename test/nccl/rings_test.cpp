// Tests how a communicator uses NCCL: several rings, parts that share, memory known in advance, and
// launches of several ranks by one thread.
#include <atomic>

#include "cuda/memory.h"
#include "gpu/device_group_batch.h"
#include "nccl/job.h"

using namespace gpu_test;

namespace {

Job with(Rank ranks, std::function<void(Config&)> change) {
    return {.ranks = ranks, .change = std::move(change)};
}

void sums(Ranked& r, Communicator& comm, int stream, const std::string& what) {
    const OnDevice data(r.rank, std::vector<float>(100, 1));
    auto request = comm.calls().start(sum100, stream, -1, data.get(), data.get());
    if (!r.works(request, what)) return;
    comm.progress().wait(**request, -1);
    r.holds((*request)->code.load() == Code::ok,
            what + ": it failed: " + (*request)->error.message);
    r.holds(data.floats() == std::vector<float>(100, static_cast<float>(comm.size())),
            what + ": the values");
}

}  // namespace

// ---- rings -------------------------------------------------------------------------------------

TEST_CASE(
    "rings: each stream has its NCCL communicator, several are under way, all go in the end") {
    run(with(2,
             [](Config& c) {
                 c.nrings = 3;
                 c.device_rings = 3;
             }),
        [](Ranked& r) {
            for (int stream = 0; stream < 3; ++stream) sums(r, *r.comm, stream, "each");
            r.holds(nccl_counts("live") >= 3, "three communicators");
            constexpr std::size_t most = 12;
            std::vector<std::unique_ptr<OnDevice>> data;
            std::vector<std::unique_ptr<Request>> requests;
            for (std::size_t i = 0; i < most; ++i) {
                data.push_back(std::make_unique<OnDevice>(
                    r.rank, std::vector<float>(100, static_cast<float>(i))));
                auto request =
                    r.comm->calls().start(sum100, -1, -1, data[i]->get(), data[i]->get());
                if (!r.works(request, "start")) return;
                requests.push_back(std::move(*request));
            }
            for (std::size_t i = 0; i < most; ++i) {
                r.comm->progress().wait(*requests[i], -1);
                r.holds(data[i]->floats()[99] == 2 * static_cast<float>(i), "the values");
            }
        });
}

TEST_CASE("rings: a mismatch ends those of all rings in one group, and they are made anew") {
    const int before = nccl_counts("group_aborts");
    run(with(2, [](Config& c) { c.device_rings = 2; }), [](Ranked& r) {
        sums(r, *r.comm, 0, "before");
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        Call call = sum100;
        if (r.rank == 1) call.count = 50;
        r.fails(r.finish(r.comm->calls().start(call, 1, -1, data.get(), data.get())),
                Code::mismatch, "collective mismatch");
        sums(r, *r.comm, 0, "afterwards");
        sums(r, *r.comm, 1, "afterwards, the other ring");
    });
    // One of each rank, for both rings.
    REQUIRE(nccl_counts("group_aborts") - before == 2);
}

// ---- parts -------------------------------------------------------------------------------------

TEST_CASE("split: parts share their parent's NCCL resources when asked to") {
    run(with(4, [](Config& c) { c.device_split = DeviceSplit::share; }), [](Ranked& r) {
        sums(r, *r.comm, 0, "the parent");
        // The last rank is in no part; order turned around.
        auto part = r.comm->split(r.rank == 3 ? -1 : r.rank % 2, -r.rank);
        if (!r.works(part, "split")) return;
        if (r.rank == 3) {
            r.holds(!*part, "no part");
        } else {
            sums(r, **part, 0, "the part");
            (*part)->destroy();
        }
        sums(r, *r.comm, 0, "the parent afterwards");
    });
}

TEST_CASE("split: before a parent has joined, its parts join by themselves") {
    run(with(2, [](Config& c) { c.device_split = DeviceSplit::share; }), [](Ranked& r) {
        auto part = r.comm->split(0, r.rank);
        if (!r.works(part, "split")) return;
        sums(r, **part, 0, "the part");
        (*part)->destroy();
    });
}

TEST_CASE("split: what ends a part's NCCL communicator ends its parent's, never in silence") {
    run(with(2, [](Config& c) { c.device_split = DeviceSplit::share; }), [](Ranked& r) {
        sums(r, *r.comm, 0, "the parent");
        auto part = r.comm->split(0, r.rank);
        if (!r.works(part, "split")) return;
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        Call call = sum100;
        if (r.rank == 1) call.count = 50;
        r.fails(r.finish((*part)->calls().start(call, 0, -1, data.get(), data.get())),
                Code::mismatch, "collective mismatch");
        const OnDevice more(r.rank, std::vector<float>(100, 1));
        r.fails(r.finish(r.comm->calls().start(sum100, 0, -1, more.get(), more.get())),
                Code::aborted, "aborted");
        (*part)->destroy();
    });
}

// ---- memory ------------------------------------------------------------------------------------

TEST_CASE("known memory: registered when the ranks join, again after a mismatch, and given back") {
    run(with(2, [](Config& c) { c.device_rings = 2; }), [](Ranked& r) {
        const OnDevice early(r.rank, std::vector<float>(100, 1)),
            late(r.rank, std::vector<float>(100, 1));
        r.works(r.comm->offload().add_memory(early.get(), 400), "before they join");
        r.works(r.comm->offload().use(r.rank), "join");
        r.works(r.comm->offload().add_memory(late.get(), 400), "afterwards");
        r.fails(r.comm->offload().add_memory(late.get(), 400), Code::invalid, "registered already");
        const auto window = r.comm->offload().allocate(1000);
        if (!r.works(window, "a window")) return;
        r.holds(device::memory_of(*window)->device == r.rank, "where it is");
        r.works(r.finish(r.comm->calls().start(sum100, 0, -1, early.get(), *window)),
                "into the window");
        Call call = sum100;
        if (r.rank == 1) call.op = Op::max;
        r.fails(r.finish(r.comm->calls().start(call, 0, -1, late.get(), late.get())),
                Code::mismatch, "max");
        sums(r, *r.comm, 1, "joined anew");
        const auto none = r.comm->offload().remove_memory(*window, false);
        r.fails(none, Code::invalid, "has not registered");
        r.works(r.comm->offload().remove_memory(*window, true), "free");
        r.works(r.comm->offload().remove_memory(early.get(), false), "deregister");
        const auto again = r.comm->offload().remove_memory(early.get(), false);
        r.holds(again && !*again, "once is enough");
    });
}

TEST_CASE("known memory: a window needs ranks that have joined") {
    run({.ranks = 2}, [](Ranked& r) {
        r.fails(r.comm->offload().allocate(100), Code::unsupported, "tutti_comm_use_device");
    });
}

// ---- one thread --------------------------------------------------------------------------------

TEST_CASE("launches: one thread calls for several ranks, several times, and messages among them") {
    const int before = nccl_counts("shared_groups");
    by_one_thread({.ranks = 3}, [](const std::vector<Ranked*>& all) {
        std::vector<std::unique_ptr<OnDevice>> data, got;
        for (Ranked* r : all) {
            data.push_back(std::make_unique<OnDevice>(r->rank, values_of(r->rank, 100)));
            got.push_back(std::make_unique<OnDevice>(r->rank, std::vector<float>(100)));
        }
        Ranked& first = *all[0];
        for (int round = 0; round < 2; ++round) {
            std::vector<std::unique_ptr<Request>> requests;
            DeviceGroupBatch::here().open();
            for (Ranked* r : all) {
                const auto i = static_cast<std::size_t>(r->rank);
                auto sum = r->comm->calls().start(sum100, -1, -1, data[i]->get(), got[i]->get());
                if (!first.works(sum, "start")) break;
                requests.push_back(std::move(*sum));
                const auto bytes = 100 * sizeof(float);
                const Rank next = (r->rank + 1) % 3, before_it = (r->rank + 2) % 3;
                first.works(r->comm->offload().run({{true, next, data[i]->get(), bytes},
                                                    {false, before_it, got[i]->get(), bytes},
                                                    {true, next, nullptr, 0, 1},
                                                    {false, before_it, nullptr, 0, 1}}),
                            "messages");
            }
            first.works(DeviceGroupBatch::here().close(), "launch");
            for (std::size_t i = 0; i < requests.size(); ++i) {
                all[i]->comm->progress().wait(*requests[i], -1);
                first.holds(requests[i]->code.load() == Code::ok,
                            "a request failed: " + requests[i]->error.message);
                first.works(all[i]->comm->offload().sync(-1), "sync");
                first.holds(got[i]->floats() == values_of(static_cast<Rank>((i + 2) % 3), 100),
                            "the neighbour's values");
            }
        }
    });
    REQUIRE(nccl_counts("shared_groups") - before >= 2);
}

TEST_CASE("launches: blocking forms, through the host too, and a failure that all hear of") {
    by_one_thread({.ranks = 2}, [](const std::vector<Ranked*>& all) {
        Ranked& first = *all[0];
        std::vector<std::unique_ptr<OnDevice>> data;
        for (Ranked* r : all)
            data.push_back(std::make_unique<OnDevice>(r->rank, std::vector<float>(100, 1)));
        for (const char* algorithm : {"", "staged"}) {
            Call call = sum100;
            call.algorithm = algorithm;
            DeviceGroupBatch::here().open();
            for (std::size_t i = 0; i < 2; ++i)
                first.works(all[i]->comm->calls().run(call, data[i]->get(), data[i]->get()), "run");
            first.works(DeviceGroupBatch::here().close(), "launch");
            for (Ranked* r : all) first.works(r->comm->offload().sync(-1), "sync");
        }
        for (std::size_t i = 0; i < 2; ++i)
            first.holds(data[i]->floats() == std::vector<float>(100, 4), "the values");
        const Told refuse(fake_fail_launch, 1);
        DeviceGroupBatch::here().open();
        for (std::size_t i = 0; i < 2; ++i)
            first.works(all[i]->comm->calls().run(sum100, data[i]->get(), data[i]->get()), "run");
        first.fails(DeviceGroupBatch::here().close(), Code::system, "internal error");
        for (Ranked* r : all) {
            const auto done = r->comm->offload().sync(-1);
            first.holds(!done, "both fail");
        }
    });
}

TEST_CASE("launches: of a group that fails nothing runs on when that is told") {
    by_one_thread({.ranks = 2}, [](const std::vector<Ranked*>& all) {
        Ranked& first = *all[0];
        std::vector<std::unique_ptr<OnDevice>> data;
        std::vector<std::unique_ptr<Request>> requests;
        std::vector<device::DeviceStream> streams;
        const Told fail(fake_fail_group, 0);
        DeviceGroupBatch::here().open();
        for (Ranked* r : all) {
            data.push_back(std::make_unique<OnDevice>(r->rank, std::vector<float>(100, 1)));
            streams.push_back(stream_of(*r));
            fake_cuda_increment(streams.back().handle(), data.back()->get(), 100, 1'000'000);
            auto sum = r->comm->calls().start(sum100, 0, -1, data.back()->get(), data.back()->get(),
                                              streams.back().handle());
            if (!first.works(sum, "start")) return;
            requests.push_back(std::move(*sum));
        }
        first.fails(DeviceGroupBatch::here().close(), Code::system, "internal error");
        for (Ranked* r : all) {
            const auto i = static_cast<std::size_t>(r->rank);
            first.holds(!r->finish(std::move(requests[i])), "both fail");
            first.holds(data[i]->floats() == std::vector<float>(100, 2), "no sum comes any more");
        }
        for (const device::DeviceStream& stream : streams) fake_cuda_synchronize(stream.handle());
        for (const auto& one : data)
            first.holds(one->floats() == std::vector<float>(100, 2), "no sum came afterwards");
    });
}

TEST_CASE("launches: what would wait for a gathered call is refused, and goes on afterwards") {
    by_one_thread({.ranks = 2}, [](const std::vector<Ranked*>& all) {
        Ranked& first = *all[0];
        Communicator& comm = *first.comm;
        std::vector<std::unique_ptr<OnDevice>> data;
        std::vector<std::unique_ptr<Request>> requests, on_host;
        std::vector<float> host(2, 1);
        DeviceGroupBatch::here().open();
        for (Ranked* r : all) {
            data.push_back(std::make_unique<OnDevice>(r->rank, std::vector<float>(100, 1)));
            auto sum =
                r->comm->calls().start(sum100, 0, -1, data.back()->get(), data.back()->get());
            auto behind = r->comm->calls().start(call_of(Collective::allreduce, 1), 0, -1,
                                                 &host[data.size() - 1], &host[data.size() - 1]);
            if (!first.works(sum, "start") || !first.works(behind, "start on the host")) return;
            requests.push_back(std::move(*sum));
            on_host.push_back(std::move(*behind));
            first.works(r->comm->calls().run(sum100, data.back()->get(), data.back()->get()),
                        "run");
        }
        const std::string words = "tutti_launch_end";
        first.fails(comm.progress().may_wait(*requests[0]), Code::invalid, words);
        first.fails(comm.progress().may_wait(*on_host[0]), Code::invalid, words);
        first.fails(comm.offload().sync(-1), Code::invalid, words);
        float value = 1;
        first.fails(comm.calls().run(call_of(Collective::allreduce, 1), &value, &value),
                    Code::invalid, words);
        first.holds(!comm.progress().wait(*requests[0], 0), "polled: not done");
        first.works(DeviceGroupBatch::here().close(), "launch");
        for (Ranked* r : all) {
            const auto i = static_cast<std::size_t>(r->rank);
            first.works(first.finish(std::move(requests[i])), "the sum");
            first.works(r->comm->progress().may_wait(*on_host[i]), "may wait");
            first.works(first.finish(std::move(on_host[i])), "on the host");
            first.works(r->comm->offload().sync(-1), "sync");
            first.holds(data[i]->floats() == std::vector<float>(100, 4) && host[i] == 2, "values");
        }
    });
}

TEST_CASE("launches: a communicator that is destroyed before them ends what it had called") {
    by_one_thread({.ranks = 2}, [](const std::vector<Ranked*>& all) {
        Ranked& first = *all[0];
        const OnDevice data(0, std::vector<float>(100, 1));
        DeviceGroupBatch::here().open();
        auto sum = first.comm->calls().start(sum100, 0, -1, data.get(), data.get());
        first.works(first.comm->calls().run(sum100, data.get(), data.get()), "run");
        first.comm->destroy();
        first.works(DeviceGroupBatch::here().close(), "nothing is left to launch");
        first.fails(first.finish(std::move(sum)), Code::aborted, "destroyed the communicator");
    });
}

TEST_CASE("launches: what cannot be gathered is refused at once") {
    REQUIRE_FALSE(DeviceGroupBatch::here().close());
    run({.ranks = 2}, [](Ranked& r) {
        const OnDevice data(r.rank, std::vector<float>(100, 1));
        DeviceGroupBatch::here().open();
        r.fails(r.comm->calls().run(sum100, data.get(), data.get()), Code::invalid,
                "tutti_comm_use_device");
        r.works(DeviceGroupBatch::here().close(), "nothing to launch");
        sums(r, *r.comm, 0, "not gathered");
    });
}
