// Every entry point of the driver and of NCCL fails, each in its turn, early and in the middle of
// operations. No rank hangs then, every rank that fails says why, nothing is left behind, and the
// process can go on.
#include <array>
#include <type_traits>

#include "nccl/messages.h"
#include "transports/nccl/library.h"

using namespace gpu_test;

namespace {

constexpr int cuda_error = 719, nccl_error = 3;  // "launch failure", "internal error"
constexpr int64_t timeout_ms = 20'000;
constexpr std::size_t large = 40'000;

enum Entry : int {
#define ENTRY(member, ...) cuda_##member,
    TUTTI_CUDA_FUNCTIONS(ENTRY)
#undef ENTRY
#define ENTRY(member, ...) nccl_##member,
        TUTTI_NCCL_FUNCTIONS(ENTRY)
#undef ENTRY
            entries
};

constexpr std::array<const char*, entries> names = {
#define NAME(member, symbol, ...) symbol,
    TUTTI_CUDA_FUNCTIONS(NAME) TUTTI_NCCL_FUNCTIONS(NAME)
#undef NAME
};

/// A function that gives a resource back does so before it fails, so that none is left behind.
constexpr bool gives_back(int entry) {
    switch (entry) {
        case cuda_primary_release:
        case cuda_context_pop:
        case cuda_stream_destroy:
        case cuda_event_destroy:
        case cuda_host_free:
        case cuda_device_free:
        case cuda_module_unload:
        case nccl_finalize:
        case nccl_destroy:
        case nccl_abort:
        case nccl_group_end:
        case nccl_premul_destroy:
        case nccl_mem_free:
        case nccl_comm_deregister:
        case nccl_window_deregister:
            return true;
        default:
            return false;
    }
}

std::array<std::atomic<int>, entries> calls{};
std::atomic<int> armed{-1}, calls_left{0};
std::atomic<bool> fired{false};

bool is_due(int entry) {
    ++calls[static_cast<std::size_t>(entry)];
    if (armed != entry || calls_left.fetch_sub(1) != 0) return false;
    fired = true;
    return true;
}

template <int entry, typename Answer, typename... Arguments>
void put_between(Answer (*&function)(Arguments...)) {
    if constexpr (std::is_same_v<Answer, int>) {
        if (!function) return;
        static Answer (*real)(Arguments...);
        real = function;
        function = [](Arguments... arguments) -> Answer {
            const int error = entry < nccl_get_version ? cuda_error : nccl_error;
            if (!is_due(entry)) return real(arguments...);
            if (gives_back(entry)) real(arguments...);
            return error;
        };
    }
}

/// Between the library and its libraries, once and for all.
void put_between_all() {
    static const bool done = [] {
        const device::Driver* found = *device::find_driver(std::getenv("TUTTI_FAKE_CUDA"));
        static device::Driver driver = *found;
#define BETWEEN(member, ...) put_between<cuda_##member>(driver.member);
        TUTTI_CUDA_FUNCTIONS(BETWEEN)
#undef BETWEEN
        device::found_driver.store(&driver);
        // The library was not made const, and no other thread has it yet.
        auto& nccl =
            const_cast<nccl::Library&>(**nccl::load_library(std::getenv("TUTTI_FAKE_NCCL")));
#define BETWEEN(member, ...) put_between<nccl_##member>(nccl.member);
        TUTTI_NCCL_FUNCTIONS(BETWEEN)
#undef BETWEEN
        return true;
    }();
    static_cast<void>(done);
}

/// Makes the calls of a program's, up to the first that fails.
class Program {
public:
    explicit Program(Ranked& ranked) : r(ranked) {}

    template <typename AnyResult>
    bool fine(const AnyResult& result, const std::string& what) {
        if (result) return true;
        const Error& error = result.error();
        r.holds(fired && !error.message.empty() && error.code != Code::timeout &&
                    error.code != Code::ok,
                what + ": " + std::string(code_name(error.code)) + ": " + error.message);
        return false;
    }
    bool sums(const Call& call, const OnDevice& in, const OnDevice& out, void* stream,
              const std::string& what) {
        return fine(r.finish(r.comm->calls().start(call, 0, -1, in.get(), out.get(), stream)),
                    what);
    }
    bool all_of_it(bool through_nccl);

private:
    Ranked& r;
};

bool Program::all_of_it(bool through_nccl) {
    if (!fine(r.comm->offload().use(r.rank), "use_device")) return false;
    auto context = device::Context::retain(*device::driver(), r.rank);
    if (!fine(context, "the program's own context")) return false;
    auto made = device::DeviceStream::create(*context);
    if (!fine(made, "the program's own stream")) return false;
    const device::DeviceStream stream = std::move(*made);
    if (!fine(r.comm->offload().set_queue(stream.handle()), "set_device_stream")) return false;
    const OnDevice data(r.rank, std::vector<float>(large, 1)),
        more(r.rank, std::vector<float>(large * static_cast<std::size_t>(r.size)));
    if (!fine(r.comm->offload().hold_own_queue(nullptr), "hold_own_stream")) return false;
    if (!fine(r.comm->offload().add_memory(data.get(), large * 4), "add_device_memory"))
        return false;
    const Call sum = call_of(Collective::allreduce, large);
    if (!sums(sum, data, data, stream.handle(), "allreduce")) return false;
    r.holds(data.floats() == std::vector<float>(large, static_cast<float>(r.size)), "the sums");
    const OnDevice rows(r.rank, std::vector<float>(1000 * static_cast<std::size_t>(r.size)));
    for (const Collective c : {Collective::allgather, Collective::broadcast, Collective::reduce,
                               Collective::scan, Collective::alltoall})
        if (!sums(call_of(c, 1000), c == Collective::alltoall ? rows : data,
                  c == Collective::broadcast ? data : more, stream.handle(),
                  std::string(collective_name(c))))
            return false;
    const OnDevice scattered(r.rank, std::vector<float>(1000));
    if (!sums(call_of(Collective::reduce_scatter, 1000), more, scattered, stream.handle(),
              "reduce_scatter"))
        return false;
    const float factor = 2;
    const auto premul = r.comm->planner().make_premul_sum(&factor, Dtype::float32);
    if (!fine(premul, "premul")) return false;
    const bool premul_fine = sums(call_of(Collective::allreduce, 100, Dtype::float32, *premul),
                                  data, data, stream.handle(), "premul allreduce");
    (void)remove_operator(*premul);
    if (!premul_fine) return false;
    Call several = call_of(Collective::allreduce, 1000);
    several.inputs = 2;
    const void* inputs[] = {data.get(), more.get()};
    if (!fine(r.finish(
                  r.comm->calls().start(several, 0, -1, inputs, scattered.get(), stream.handle())),
              "allreduce_multi"))
        return false;
    const Rank next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
    if (!fine(both_ways(r, {send_of(data, 1000, next), receive_of(more, 1000, before)}, -1,
                        stream.handle()),
              "messages"))
        return false;
    if (through_nccl) {
        const auto window = r.comm->offload().allocate(1000);
        if (!fine(window, "allocate_on_device")) return false;
        if (!fine(r.comm->offload().remove_memory(*window, true), "give it back")) return false;
    }
    if (!fine(r.comm->offload().remove_memory(data.get(), false), "remove_device_memory"))
        return false;
    auto part = r.comm->split(0, r.rank);
    if (!fine(part, "split")) return false;
    const bool part_fine =
        fine(r.finish((*part)->calls().start(call_of(Collective::allreduce, 100), 0, -1, data.get(),
                                             data.get(), stream.handle())),
             "the part's allreduce");
    (*part)->destroy();
    return part_fine && fine(r.comm->offload().sync(-1), "sync");
}

void host_works(Ranked& r) {
    std::vector<float> data(100, 1);
    r.works(r.comm->calls().run(call_of(Collective::allreduce, 100), data.data(), data.data()),
            "on the host");
    r.holds(data == std::vector<float>(100, static_cast<float>(r.size)), "the host's sums");
}

struct Way {
    const char* name;
    DeviceMode way;
    Rank ranks;
};

void run_once(const Way& way) {
    run({.ranks = way.ranks,
         .change =
             [&way](Config& c) {
                 c.device = way.way;
                 c.timeout_ms = timeout_ms;
                 c.device_tile_bytes = 16 * 1024;
                 c.device_split = DeviceSplit::share;
                 if (way.way != DeviceMode::hierarchical) return;
                 c.transports = {"inproc", "tcp"};
                 c.host_id = fmt::format("acted-{}", c.rank / 2);
             }},
        [&way](Ranked& r) {
            Program program(r);
            const bool all = program.all_of_it(way.way == DeviceMode::library);
            r.holds(all || fired, "it failed, but nothing did");
        });
}

}  // namespace

TEST_CASE("faults: whatever the driver or NCCL fails at, ranks hear of it, and all goes on") {
    const Setting fast("FAKE_CUDA_DELAY_US", "5");
    put_between_all();
    std::vector<bool> tried(entries);
    for (const Way& way :
         {Way{"nccl", DeviceMode::library, 2}, Way{"staged", DeviceMode::staged, 2},
          Way{"hierarchical", DeviceMode::hierarchical, 4}}) {
        armed = -1;
        fired = false;
        for (auto& count : calls) count = 0;
        run_once(way);
        std::array<int, entries> counted{};
        for (std::size_t e = 0; e < entries; ++e) counted[e] = calls[e];
        for (int e = 0; e < entries; ++e) {
            const int made = counted[static_cast<std::size_t>(e)];
            for (const int before : {0, made / 2}) {
                // If one rank fails here, the others wait to the deadline (docs/reference/gpu.md).
                if (e == nccl_window_register) continue;
                if (made == 0 || (before == 0 && made / 2 == 0 && made > 1)) continue;
                INFO(way.name << ": " << names[static_cast<std::size_t>(e)] << " fails after "
                              << before << " of " << made << " calls");
                fired = false;
                calls_left = before;
                armed = e;
                run_once(way);
                armed = -1;
                tried[static_cast<std::size_t>(e)] = true;
            }
        }
        run({.ranks = 2}, host_works);
    }
    std::string untried;
    for (std::size_t e = 0; e < entries; ++e)
        if (!tried[e]) untried += std::string(names[e]) + " ";
    WARN(untried);
}
