// Ranks as threads of one process, each with a device of the stand-in's, and buffers there.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "device/fake_cuda.h"
#include "support/catch.h"

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
    template <typename T>
    bool works(const Result<T>& result, const std::string& what) {
        return holds(result.has_value(), what + (result ? "" : ": " + result.error().message));
    }
    template <typename T>
    void fails(const Result<T>& result, Code code, const std::string& words) {
        if (!holds(!result, "expected to fail: " + words)) return;
        holds(
            result.error().code == code && result.error().message.find(words) != std::string::npos,
            "expected '" + words + "', got " + result.error().message);
    }
    Result<> finish(Result<std::unique_ptr<Request>> request) {
        if (!request) return tl::unexpected(request.error());
        comm->wait(**request, -1);
        if ((*request)->code.load() == Code::ok) return {};
        return tl::unexpected((*request)->error);
    }
};

struct Job {
    Rank ranks = 2;
    std::function<void(Config&)> change = {};
};

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

}  // namespace gpu_test
