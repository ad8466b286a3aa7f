// Ranks as threads of one process, each with a device of the stand-in's, and buffers there.
#pragma once

#include <dlfcn.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "cuda/fake_cuda.h"
#include "cuda/handles.h"
#include "gpu/operations/device_fold.h"
#include "support/catch.h"
#include "support/sanitized.h"

namespace gpu_test {

using namespace tutti;

/// A variable of the environment, for a scope.
class Setting {
public:
    Setting(const char* name, const std::string& value) : name_(name) {
        ::setenv(name, value.c_str(), 1);
    }
    ~Setting() { ::unsetenv(name_); }
    Setting(const Setting&) = delete;

private:
    const char* name_;
};

/// Elements of any type on a device.
class OnDevice {
public:
    OnDevice(int device, const std::vector<std::byte>& bytes)
        : address_(fake_cuda_alloc(device, bytes.size() + 1)), bytes_(bytes.size()) {
        if (bytes_ > 0) fake_cuda_poke(address_, bytes.data(), bytes_);
    }
    OnDevice(int device, const std::vector<float>& values) : OnDevice(device, bytes_of(values)) {}
    ~OnDevice() { fake_cuda_free(address_); }
    OnDevice(const OnDevice&) = delete;
    std::byte* get() const { return static_cast<std::byte*>(address_); }
    std::vector<std::byte> bytes() const {
        std::vector<std::byte> read(bytes_);
        if (bytes_ > 0) fake_cuda_peek(read.data(), address_, bytes_);
        return read;
    }
    std::vector<float> floats() const {
        std::vector<float> read(bytes_ / sizeof(float));
        if (bytes_ > 0) fake_cuda_peek(read.data(), address_, bytes_);
        return read;
    }

private:
    static std::vector<std::byte> bytes_of(const std::vector<float>& values) {
        const auto* first = reinterpret_cast<const std::byte*>(values.data());
        return {first, first + values.size() * sizeof(float)};
    }
    void* address_;
    std::size_t bytes_;
};

struct Ranked {
    Rank rank = 0, size = 1;
    std::shared_ptr<Communicator> comm;
    const Config* config = nullptr;
    std::string problem;

    bool holds(bool test, const std::string& what) {
        if (!test && problem.empty()) problem = what;
        return test;
    }
    template <typename AnyResult>
    bool works(const AnyResult& result, const std::string& what) {
        return holds(result.has_value(), what + (result ? "" : ": " + result.error().message));
    }
    template <typename AnyResult>
    void fails(const AnyResult& result, Code code, const std::string& words) {
        if (!holds(!result, "expected to fail: " + words)) return;
        const std::string text = error_text(result.error());
        holds(result.error().code == code && text.find(words) != std::string::npos,
              "expected '" + words + "', got " + text);
    }
    Result<> finish(Result<std::unique_ptr<Request>> request) {
        if (!request) return tl::unexpected(request.error());
        comm->progress().wait(**request, -1);
        if ((*request)->code.load() == Code::ok) return {};
        return tl::unexpected((*request)->error);
    }
};

struct Job {
    Rank ranks = 2;
    std::function<void(Config&)> change = {};
};

inline constexpr std::size_t tile_bytes = 16 * 1024;
inline constexpr int most_rounds = tutti::test::sanitized ? 1 : 30;

/// Rank r is on host hosts[r].
inline Job job_on(const std::vector<int>& hosts, DeviceMode way = DeviceMode::hierarchical) {
    return {.ranks = static_cast<Rank>(hosts.size()), .change = [=](Config& c) {
                c.device = way;
                c.transports = {"inproc", "tcp"};
                c.device_tile_bytes = tile_bytes;
                c.host_id = fmt::format("acted-{}", hosts[static_cast<std::size_t>(c.rank)]);
            }};
}

/// A stand-in's setting, for a scope; threads may run meanwhile.
class Told {
public:
    Told(int what, int rank) : what_(what) { fake_cuda_tell(what, rank); }
    ~Told() { fake_cuda_tell(what_, -1); }
    Told(const Told&) = delete;

private:
    const int what_;
};

/// Reads a count of the NCCL stand-in: "live", "registered", "shared_groups", "group_aborts".
inline int nccl_counts(const std::string& what) {
    void* library = ::dlopen(std::getenv("TUTTI_FAKE_NCCL"), RTLD_NOW | RTLD_NOLOAD);
    const auto count = reinterpret_cast<int (*)()>(
        library ? ::dlsym(library, ("fake_nccl_" + what).c_str()) : nullptr);
    return count ? count() : 0;
}

/// Each rank on a thread of its own, and afterwards nothing is left and nothing was done wrong.
inline void run(const Job& job, const std::function<void(Ranked&)>& body) {
    char name[] = "/tmp/tutti-gpu-test-XXXXXX";
    const std::string folder = ::mkdtemp(name);
    std::vector<Ranked> all(static_cast<std::size_t>(job.ranks));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < job.ranks; ++rank)
        threads.emplace_back([&, rank] {
            Ranked& r = all[static_cast<std::size_t>(rank)];
            Config config;
            config.rank = rank;
            config.size = job.ranks;
            config.store = "file://" + folder;
            config.transports = {"inproc"};
            config.timeout_ms = 60'000;
            config.cuda_library = std::getenv("TUTTI_FAKE_CUDA");
            config.nccl_library = std::getenv("TUTTI_FAKE_NCCL");
            if (job.change) job.change(config);
            r.rank = rank;
            r.size = job.ranks;
            r.config = &config;
            auto comm = Communicator::create(config, nullptr);
            if (!r.works(comm, "create")) return;
            r.comm = std::move(*comm);
            body(r);
            r.comm->destroy();
            r.comm.reset();
        });
    for (std::thread& thread : threads) thread.join();
    std::filesystem::remove_all(folder);
    for (const Ranked& r : all) {
        INFO("rank " << r.rank);
        REQUIRE(r.problem == "");
    }
    REQUIRE(std::string(fake_cuda_violations()) == "");
    REQUIRE(fake_cuda_live() == 0);
    REQUIRE(nccl_counts("live") == 0);
    REQUIRE(nccl_counts("registered") == 0);
}

/// Waits until so many ranks have counted, at most 20 s.
inline void wait_for(const std::atomic<int>& count, int wanted) {
    for (int i = 0; i < 20'000 && count < wanted; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Every rank joins by its own thread; then `body` has all of them on the first one's.
inline void by_one_thread(const Job& job,
                          const std::function<void(const std::vector<Ranked*>&)>& body) {
    // Without being gathered, the first of NCCL's calls would wait for the others.
    const Setting connects("FAKE_NCCL_CONNECTS", "1");
    std::vector<Ranked*> all(static_cast<std::size_t>(job.ranks));
    std::barrier together(job.ranks);
    run(job, [&](Ranked& r) {
        r.works(r.comm->offload().use(r.rank), "join");
        all[static_cast<std::size_t>(r.rank)] = &r;
        together.arrive_and_wait();
        if (r.rank == 0) body(all);
        together.arrive_and_wait();
    });
}

inline Call call_of(Collective collective, std::size_t count, Dtype dtype = Dtype::float32,
                    Op op = Op::sum, Rank root = 0) {
    Call call;
    call.collective = collective;
    call.count = count;
    call.dtype = dtype;
    call.op = op;
    call.root = root;
    return call;
}

inline const Call sum100 = call_of(Collective::allreduce, 100);

/// A stream of the rank's own device.
inline device::DeviceStream stream_of(const Ranked& r) {
    return std::move(
        *device::DeviceStream::create(*device::Context::retain(*device::driver(), r.rank)));
}

/// Small whole numbers: sums are exact in whatever order.
inline std::vector<float> values_of(Rank rank, std::size_t length) {
    std::vector<float> values(length);
    for (std::size_t i = 0; i < length; ++i)
        values[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 50);
    return values;
}

/// The same call on both kinds of memory, some times. Neither buffer is longer than the call needs.
inline void compare_floats(Ranked& r, const Call& call, std::size_t in_length,
                           std::size_t out_length) {
    const std::string name = fmt::format("{} of {}", collective_name(call.collective), call.count);
    const auto in = values_of(r.rank, in_length);
    std::vector<float> expected = values_of(r.rank, out_length);
    const OnDevice input(r.rank, in), output(r.rank, expected);
    const bool one = call.collective == Collective::broadcast;
    Call host = call;
    host.algorithm = {};
    const auto* host_in = reinterpret_cast<const std::byte*>(one ? expected.data() : in.data());
    r.works(r.comm->calls().run(host, host_in, expected.data()), name + " on the host");
    for (int round = 0; round < (tutti::test::sanitized ? 1 : 2); ++round) {
        if (one) fake_cuda_poke(output.get(), in.data(), in.size() * sizeof(float));
        const std::byte* from = one ? output.get() : input.get();
        r.works(r.finish(r.comm->calls().start(call, -1, -1, from, output.get())), name);
        r.holds(output.floats() == expected, name + ": other values than on the host");
    }
}

/// Several allreduces in place, each behind a slow kernel that adds one and before a quick one.
inline void sum_between_kernels(Ranked& r, std::size_t count) {
    const device::DeviceStream stream = stream_of(r);
    r.works(r.comm->offload().set_queue(stream.handle()), "set");
    const OnDevice data(r.rank, std::vector<float>(count, 1));
    const Call call = call_of(Collective::allreduce, count);
    float wanted = 1;
    for (int round = 0; round < 3; ++round) {
        fake_cuda_increment(stream.handle(), data.get(), count, 30'000);
        r.works(r.comm->calls().run(call, data.get(), data.get()), "run");
        fake_cuda_increment(stream.handle(), data.get(), count, 0);
        wanted = static_cast<float>(r.size) * (wanted + 1) + 1;
    }
    r.works(r.comm->offload().sync(-1), "sync");
    fake_cuda_synchronize(stream.handle());
    r.holds(data.floats() == std::vector<float>(count, wanted), "the values");
    r.works(r.comm->offload().set_queue(nullptr), "set back");
}

}  // namespace gpu_test
