// Collectives on device memory against the same on host memory: every type and operator, through
// the device's library where it has them, else through the host.
#include "nccl/job.h"
#include "plan/buffer_range.h"
#include "support/numbers.h"
#include "transports/catalog.h"

using namespace gpu_test;

namespace {

/// Small whole numbers, which every type holds exactly, as do sums and products of a few.
std::vector<std::byte> numbers(Dtype dtype, std::size_t count, unsigned seed) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>((seed + 3 * i) % 3 + 1);
    return test::encoded(dtype, values);
}

/// The schedule that the device's library has to equal.
std::string_view reference(Collective collective) {
    static const auto library = make_nccl_library(std::getenv("TUTTI_FAKE_NCCL"));
    return library ? (*library)->reference(collective) : "no library";
}

/// The same call on both kinds of memory gives the same bytes. The buffers are as long as either
/// needs, and what no one writes stays.
void compare(Ranked& r, const Call& call, const std::string& what) {
    const std::size_t bytes = dtype_bytes(call.dtype);
    const auto length = [&](Space space) {
        const BufferRange e = range_of(call, r.rank, r.size, space);
        return e.used ? e.length : 0;
    };
    const auto in = numbers(call.dtype, length(Space::input), static_cast<unsigned>(r.rank));
    std::vector<std::byte> expected(length(Space::output) * bytes, std::byte{0x55});
    const OnDevice input(r.rank, in), output(r.rank, expected);
    Call host = call;
    host.algorithm = reference(call.collective);
    const bool one_buffer = call.collective == Collective::broadcast;
    if (one_buffer && r.rank == call.root) {
        expected = in;
        fake_cuda_poke(output.get(), in.data(), in.size());
    }
    r.works(r.comm->calls().run(host, one_buffer ? expected.data() : in.data(), expected.data()),
            what + " on the host");
    const auto* from = one_buffer ? output.get() : input.get();
    r.works(r.finish(r.comm->calls().start(call, -1, -1, from, output.get())), what);
    r.holds(output.bytes() == expected, what + ": other values than on the host");
}

constexpr Collective reducing[] = {Collective::allreduce, Collective::reduce,
                                   Collective::reduce_scatter, Collective::scan,
                                   Collective::exscan};
constexpr Collective moving[] = {Collective::broadcast, Collective::allgather, Collective::gather,
                                 Collective::scatter, Collective::alltoall};

std::string name_of(const Call& call) {
    return fmt::format("{} {} {}", collective_name(call.collective), dtype_name(call.dtype),
                       op_name(call.op));
}

}  // namespace

TEST_CASE("device memory: every collective equals the host's") {
    for (const Rank ranks : {1, 2, 4})
        run({.ranks = ranks}, [](Ranked& r) {
            for (const Collective c : reducing)
                compare(r, call_of(c, 37), std::string(collective_name(c)));
            for (const Collective c : moving) {
                compare(r, call_of(c, 37, Dtype::int16, Op::sum, r.size - 1),
                        std::string(collective_name(c)));
            }
        });
}

TEST_CASE("device memory: every type and operator equals the host's, whoever does it") {
    const Setting fast("FAKE_CUDA_DELAY_US", "0");
    run({.ranks = 2}, [](Ranked& r) {
        for (int32_t dtype = 0; dtype < dtype_count; ++dtype)
            for (int32_t op = 0; op < op_count; ++op) {
                const Call call = call_of(Collective::allreduce, 9, static_cast<Dtype>(dtype),
                                          static_cast<Op>(op));
                if (r.comm->planner().check(call, -1)) compare(r, call, name_of(call));
            }
    });
}

TEST_CASE("device memory: through the host when the call asks for it") {
    run({.ranks = 4}, [](Ranked& r) {
        for (const Collective c : reducing) {
            Call call = call_of(c, 1000);
            call.algorithm = "staged";
            compare(r, call, "staged " + name_of(call));
        }
        for (const Collective c : moving) {
            Call call = call_of(c, 100);
            call.algorithm = "staged";
            compare(r, call, "staged " + name_of(call));
        }
    });
}

TEST_CASE("device memory: blocks of different lengths, gaps left alone") {
    run({.ranks = 3}, [](Ranked& r) {
        const std::vector<std::size_t> counts{2, 1, 3}, at{5, 0, 10};
        for (const char* algorithm : {"", "staged"}) {
            const auto me = static_cast<std::size_t>(r.rank);
            Call gather = call_of(Collective::allgather, counts[me]);
            gather.uneven = true;
            gather.output = {counts, at};
            gather.algorithm = algorithm;
            compare(r, gather, fmt::format("allgatherv {}", algorithm));
            Call scatter = call_of(Collective::reduce_scatter, counts[me]);
            scatter.uneven = true;
            scatter.input = {counts, {}};
            scatter.algorithm = algorithm;
            compare(r, scatter, fmt::format("reduce_scatterv {}", algorithm));
            Call all = call_of(Collective::alltoall, 0);
            std::vector<std::size_t> to(3), from(3);
            for (std::size_t i = 0; i < 3; ++i) {
                to[i] = me + i + 1;
                from[i] = i + me + 1;
            }
            all.count = to[me];
            all.uneven = true;
            all.input = {to, {}};
            all.output = {from, {}};
            all.algorithm = algorithm;
            compare(r, all, fmt::format("alltoallv {}", algorithm));
        }
    });
}

TEST_CASE(
    "device memory: 8-bit floats go through the host where one device is too old for NCCL's") {
    const Setting old("FAKE_CUDA_OLD_DEVICE", "1");
    run({.ranks = 2}, [](Ranked& r) {
        for (const Dtype dtype : {Dtype::float8_e4m3, Dtype::float16}) {
            Call call = call_of(Collective::allreduce, 100);
            call.dtype = dtype;
            compare(r, call, std::string(dtype_name(dtype)));
        }
    });
}

TEST_CASE("device memory: a rank without blocks is on its stream's device, and not in place") {
    run({.ranks = 3}, [](Ranked& r) {
        // Ranks 0 and 1 exchange one element each; rank 2, in its first call, has no memory at all.
        const bool takes_part = r.rank < 2;
        std::vector<std::size_t> one(3);
        if (takes_part) one[static_cast<std::size_t>(1 - r.rank)] = 1;
        Call call = call_of(Collective::alltoall, 0);
        call.uneven = true;
        call.input = {one, {}};
        call.output = {one, {}};
        const device::DeviceStream stream = stream_of(r);
        const OnDevice in(r.rank, values_of(r.rank, 1)), out(r.rank, values_of(2, 1));
        const void* const from = takes_part ? in.get() : nullptr;
        void* const to = takes_part ? out.get() : nullptr;
        r.works(r.finish(r.comm->calls().start(call, -1, -1, from, to, stream.handle())),
                "alltoallv");
        fake_cuda_synchronize(stream.handle());
        if (takes_part) r.holds(out.floats() == values_of(1 - r.rank, 1), "the other's element");
        compare(r, call_of(Collective::allreduce, 100), "afterwards");
    });
}

TEST_CASE("device memory: a rank without blocks is where its pointers are") {
    run({.ranks = 3}, [](Ranked& r) {
        const bool takes_part = r.rank < 2;
        std::vector<std::size_t> one(3), of_root{1, 1, 0};
        if (takes_part) one[static_cast<std::size_t>(1 - r.rank)] = 1;
        const OnDevice in(r.rank, values_of(r.rank, 1)), out(r.rank, values_of(2, 2));
        Call all = call_of(Collective::alltoall, 0);
        all.uneven = true;
        all.input = all.output = {one, {}};
        r.works(r.comm->calls().run(all, in.get(), out.get()), "alltoallv");
        r.works(r.comm->offload().sync(-1), "sync");
        if (takes_part) r.holds(out.floats()[0] == values_of(1 - r.rank, 1)[0], "the element");
        Call gather = call_of(Collective::gather, takes_part ? 1 : 0);
        gather.uneven = true;
        if (r.rank == 0) gather.output = {of_root, {}};
        r.works(r.comm->calls().run(gather, in.get(), r.rank == 0 ? out.get() : nullptr),
                "gatherv");
        r.works(r.comm->offload().sync(-1), "sync");
        if (r.rank == 0) r.holds(out.floats()[1] == values_of(1, 1)[0], "rank 1's");
    });
}

TEST_CASE("device memory: in place") {
    run({.ranks = 2}, [](Ranked& r) {
        const std::vector<float> values{1, 2, 3, 4};
        for (const char* algorithm : {"", "staged"}) {
            const OnDevice all(r.rank, values);
            Call sum = call_of(Collective::allreduce, 4);
            sum.algorithm = algorithm;
            r.works(r.finish(r.comm->calls().start(sum, 0, -1, all.get(), all.get())), "allreduce");
            r.holds(all.floats() == std::vector<float>{2, 4, 6, 8}, "allreduce in place");
            Call scatter = call_of(Collective::reduce_scatter, 2);
            scatter.algorithm = algorithm;
            std::byte* own = all.get() + 8 * r.rank;
            r.works(r.finish(r.comm->calls().start(scatter, 0, -1, all.get(), own)),
                    "reduce_scatter");
            const std::vector<float> wanted =
                r.rank == 0 ? std::vector<float>{4, 8, 6, 8} : std::vector<float>{2, 4, 12, 16};
            r.holds(all.floats() == wanted, "reduce_scatter in place");
            Call gather = call_of(Collective::allgather, 2);
            gather.algorithm = algorithm;
            r.works(r.finish(r.comm->calls().start(gather, 0, -1, own, all.get())), "allgather");
            r.holds(all.floats() == std::vector<float>{4, 8, 12, 16}, "allgather in place");
        }
        const OnDevice all(r.rank, values);
        const Call exchange = call_of(Collective::alltoall, 2);
        r.fails(r.comm->calls().start(exchange, 0, -1, all.get(), all.get()), Code::unsupported,
                "in place");
        Call staged = exchange;
        staged.algorithm = "staged";
        r.works(r.finish(r.comm->calls().start(staged, 0, -1, all.get(), all.get())), "alltoall");
        const float kept = r.rank == 0 ? 1 : 3;
        r.holds(all.floats() == std::vector<float>{kept, kept + 1, kept, kept + 1},
                "alltoall in place");
    });
}

TEST_CASE("device memory: pre-multiplied sums and operators of the program's own") {
    run({.ranks = 2}, [](Ranked& r) {
        const float factor = r.rank == 0 ? 2 : 10;
        const auto premul = r.comm->planner().make_premul_sum(&factor, Dtype::float32);
        if (!r.works(premul, "premul")) return;
        compare(r, call_of(Collective::allreduce, 20, Dtype::float32, *premul), "premul");
        // Its scalar is wider than the data: NCCL would round it.
        compare(r, call_of(Collective::allreduce, 20, Dtype::bfloat16, *premul), "premul of bf16");
        (void)remove_operator(*premul);
        compare(r, call_of(Collective::allreduce, 5), "and again without");
    });
}

// The host's way is the reference: the device adds in another place, not to other bits.
TEST_CASE("device memory: several inputs are added on the device, with the host's bits") {
    run({.ranks = 2}, [](Ranked& r) {
        const int before = fake_cuda_kernels();
        constexpr std::size_t length = 1000;
        for (const Dtype dtype :
             {Dtype::bfloat16, Dtype::float8_e5m2, Dtype::float32, Dtype::int16})
            for (const Op op : {Op::sum, Op::avg, Op::max, Op::prod})
                for (const int32_t inputs : {1, 2, 20}) {
                    std::vector<std::vector<std::byte>> host;
                    std::vector<std::unique_ptr<OnDevice>> device;
                    std::vector<const void*> host_list, device_list;
                    for (int32_t i = 0; i < inputs; ++i) {
                        host.push_back(
                            numbers(dtype, length, static_cast<unsigned>(r.rank + 2 * i)));
                        device.push_back(std::make_unique<OnDevice>(r.rank, host.back()));
                    }
                    for (int32_t i = 0; i < inputs; ++i) {
                        host_list.push_back(host[static_cast<std::size_t>(i)].data());
                        device_list.push_back(device[static_cast<std::size_t>(i)]->get());
                    }
                    std::vector<std::byte> expected(host[0].size());
                    const OnDevice output(r.rank, expected);
                    Call call = call_of(Collective::allreduce, length, dtype, op);
                    call.inputs = inputs;
                    const std::string what = fmt::format("{} inputs, {}", inputs, name_of(call));
                    r.works(r.comm->calls().run(call, host_list.data(), expected.data()), what);
                    for (int round = 0; round < 2; ++round) {
                        r.works(r.finish(r.comm->calls().start(call, -1, -1, device_list.data(),
                                                               output.get())),
                                what);
                        r.holds(output.bytes() == expected, what + ": other bits");
                    }
                }
        if (DeviceFold::built()) r.holds(fake_cuda_kernels() > before, "a kernel added");
    });
}

TEST_CASE("device memory: ranks on host memory take part in what is staged") {
    run({.ranks = 3, .change = [](Config& c) { c.device = DeviceMode::staged; }}, [](Ranked& r) {
        const std::vector<float> mine(5000, static_cast<float>(r.rank + 1));
        std::vector<float> host_out(5000);
        const OnDevice in(r.rank, mine), out(r.rank, std::vector<float>(5000));
        const Call call = call_of(Collective::allreduce, 5000);
        for (int round = 0; round < 3; ++round) {
            if (r.rank == round) {
                r.works(r.comm->calls().run(call, mine.data(), host_out.data()), "on the host");
                r.holds(host_out[4999] == 6, "the host's values");
            } else {
                r.works(r.comm->calls().run(call, in.get(), out.get()), "on the device");
                r.works(r.comm->offload().sync(-1), "sync");
                r.holds(out.floats()[4999] == 6, "the device's values");
            }
        }
        // One rank's buffers may differ too.
        r.works(r.comm->calls().run(call, mine.data(), out.get()), "from the host to the device");
        r.works(r.comm->offload().sync(-1), "sync");
        r.holds(out.floats()[0] == 6, "mixed");
        std::fill(host_out.begin(), host_out.end(), 0.0F);
        r.works(r.comm->calls().run(call, in.get(), host_out.data()),
                "from the device to the host");
        r.works(r.comm->offload().sync(-1), "sync");
        r.holds(host_out[0] == 6 && host_out[4999] == 6, "mixed, the other way");
    });
}
