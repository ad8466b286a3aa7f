// The NCCL library's seam on its own, against the stand-ins: ranks are threads with a device each.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "cuda/fake_cuda.h"
#include "cuda/handles.h"
#include "cuda/held_stream.h"
#include "support/catch.h"
#include "transports/catalog.h"
#include "transports/nccl/library.h"

using namespace tutti;

namespace {

class Setting {
public:
    Setting(const char* name, const std::string& value) : name_(name) {
        ::setenv(name, value.c_str(), 1);
    }
    ~Setting() { ::unsetenv(name_); }

private:
    const char* name_;
};

class Told {
public:
    Told(int what, int rank) : what_(what) { fake_cuda_tell(what, rank); }
    ~Told() { fake_cuda_tell(what_, -1); }

private:
    int what_;
};

int live_communicators() {
    static auto* count = reinterpret_cast<int (*)()>(
        dlsym(dlopen(std::getenv("TUTTI_FAKE_NCCL"), RTLD_NOW | RTLD_NOLOAD), "fake_nccl_live"));
    return count();
}

const DeviceLibrary& library() {
    static const auto loaded = [] {
        (void)*device::find_driver(std::getenv("TUTTI_FAKE_CUDA"));
        return *device_libraries()[0].load(std::getenv("TUTTI_FAKE_NCCL"));
    }();
    return *loaded;
}

const DeviceOperation::GiveUp never = [] { return false; };

struct Member {
    Rank rank = 0, size = 1;
    std::shared_ptr<DeviceGroup> group;
    void* stream = nullptr;
    std::string problem;  // the first failure, for the test's thread

    bool holds(bool test, const std::string& what) {
        if (!test && problem.empty()) problem = what;
        return test;
    }
    /// Runs it to its end; the code it ended with.
    Poll finish(Operation& operation) const {
        for (int i = 0; i < 20'000; ++i) {
            const Poll poll = operation.progress();
            if (!poll.pending()) return poll;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return Code::timeout;
    }
};

using Body = std::function<void(Member&)>;

/// Each rank on a thread of its own, with device `rank` and a stream there.
void with_group(Rank ranks, const Body& body, bool leaves = true) {
    const auto id = library().make_id();
    REQUIRE(id);
    std::vector<Member> members(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            Member& m = members[static_cast<std::size_t>(rank)];
            m.rank = rank;
            m.size = ranks;
            const auto context = device::Context::retain(*device::driver(), rank);
            const auto stream = device::DeviceStream::create(*context);
            m.stream = stream->handle();
            auto joined =
                library().join({rank, ranks, rank, *id, 20'000}, Deadline::after_ms(20'000));
            if (!joined) {
                m.problem = joined.error().message;
                return;
            }
            m.group = *joined;
            body(m);
            if (leaves) m.group->leave(Deadline::after_ms(5'000));
            m.group.reset();
        });
    for (std::thread& thread : threads) thread.join();
    for (const Member& m : members) {
        INFO("rank " << m.rank);
        REQUIRE(m.problem == "");
    }
    REQUIRE(std::string(fake_cuda_violations()) == "");
    REQUIRE(live_communicators() == 0);
    REQUIRE(fake_cuda_live() == 0);
}

/// Floats on a device.
class Floats {
public:
    Floats(int device, const std::vector<float>& values)
        : address_(fake_cuda_alloc(device, values.size() * sizeof(float) + 1)),
          count_(values.size()) {
        fake_cuda_poke(address_, values.data(), count_ * sizeof(float));
    }
    ~Floats() { fake_cuda_free(address_); }
    Floats(const Floats&) = delete;
    std::byte* get() const { return static_cast<std::byte*>(address_); }
    std::vector<float> values() const {
        std::vector<float> read(count_);
        fake_cuda_peek(read.data(), address_, count_ * sizeof(float));
        return read;
    }

private:
    void* address_;
    std::size_t count_;
};

IntrinsicShape shape_of(Collective collective, std::size_t count) {
    IntrinsicShape shape;
    shape.collective = collective;
    shape.count = count;
    shape.dtype = Dtype::float32;
    return shape;
}

/// Binds, launches, runs; the output's values.
std::vector<float> run(Member& m, const IntrinsicShape& shape, const std::vector<float>& in,
                       std::size_t out_count) {
    auto operation = m.group->bind(shape);
    if (!m.holds(operation.has_value(), operation ? "" : operation.error().message)) return {};
    const Floats input(m.rank, in), output(m.rank, std::vector<float>(out_count, -1));
    const auto launched = (*operation)->launch(input.get(), output.get(), m.stream, never);
    if (!m.holds(launched.has_value(), launched ? "" : launched.error().message)) return {};
    (*operation)->start({}, nullptr, nullptr);
    m.holds(m.finish(**operation) == Code::ok, "an operation failed");
    return output.values();
}

}  // namespace

TEST_CASE(
    "nccl: the system's is taken after a path that leads nowhere, or it says where it looked") {
    // In a process of its own: what was found once stays.
    const pid_t child = ::fork();
    if (child == 0) {
        const auto own = nccl::load_library("/nowhere/libnccl.so");
        if (own) ::_exit((*own)->where == "libnccl.so.2" && (*own)->version >= 21800 ? 0 : 1);
        for (const char* words :
             {"/nowhere/libnccl.so", "libnccl.so.2", "loaded already", "TUTTI_NCCL_LIBRARY"})
            if (own.error().message.find(words) == std::string::npos) ::_exit(2);
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(status == 0);
}

TEST_CASE("nccl: a path wins over what the program has loaded, which wins over the system's") {
    const std::string fake = std::getenv("TUTTI_FAKE_NCCL");
    for (const std::string& given : {fake, std::string()}) {
        // In a process of its own: what was found once stays.
        const pid_t child = ::fork();
        if (child == 0) {
            if (!::dlopen(fake.c_str(), RTLD_NOW | RTLD_GLOBAL)) ::_exit(3);
            const auto found = nccl::load_library(given);
            if (!found) ::_exit(2);
            ::_exit((*found)->where == (given.empty() ? "already in the process" : fake) ? 0 : 1);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        CAPTURE(given);
        REQUIRE(status == 0);
    }
}

TEST_CASE("nccl: refuses a version that is too old, and names both") {
    const Setting old("FAKE_NCCL_VERSION", "21703");
    const auto refused = nccl::load_library(std::getenv("TUTTI_FAKE_NCCL"));
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().message.find("2.17.3") != std::string::npos);
    REQUIRE(refused.error().message.find("at least 2.18.0") != std::string::npos);
}

TEST_CASE("nccl: two ranks share a device only from 2.30 on, when the user says so") {
    REQUIRE(library().name() == "nccl");
    REQUIRE(library().describe().find("2.28.7") != std::string::npos);
    const Setting on("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    REQUIRE_FALSE(library().shares_devices());
}

TEST_CASE("nccl: every collective moves what it should") {
    for (const Rank ranks : {1, 2, 4})
        with_group(ranks, [](Member& m) {
            const auto me = static_cast<float>(m.rank), n = static_cast<float>(m.size);
            const auto size = static_cast<std::size_t>(m.size);
            const float total = n * (n + 1) / 2;
            const std::vector<float> mine(3, me + 1);
            const auto row = [&](std::size_t count, auto value) {
                std::vector<float> all;
                for (std::size_t r = 0; r < size; ++r)
                    all.insert(all.end(), count, value(static_cast<float>(r)));
                return all;
            };
            const auto own = [&](float r) { return r + 1; };
            using enum Collective;
            m.holds(run(m, shape_of(allreduce, 3), mine, 3) == std::vector(3, total), "allreduce");
            m.holds(run(m, shape_of(broadcast, 3), mine, 3) == std::vector(3, 1.0f), "broadcast");
            m.holds(run(m, shape_of(allgather, 3), mine, 3 * size) == row(3, own), "allgather");
            const auto reduced = run(m, shape_of(reduce, 3), mine, 3);
            m.holds(reduced == std::vector(3, m.rank == 0 ? total : -1), "reduce");
            const auto gathered = run(m, shape_of(gather, 3), mine, 3 * size);
            m.holds(gathered == (m.rank == 0 ? row(3, own) : std::vector(3 * size, -1.0f)),
                    "gather");
            const auto rows = row(2, [&](float r) { return 10 * me + r; });
            m.holds(run(m, shape_of(scatter, 2), rows, 2) == std::vector(2, me), "scatter");
            m.holds(run(m, shape_of(alltoall, 2), rows, 2 * size) ==
                        row(2, [&](float r) { return 10 * r + me; }),
                    "alltoall");
            m.holds(run(m, shape_of(reduce_scatter, 2), rows, 2) ==
                        std::vector(2, 10 * n * (n - 1) / 2 + n * me),
                    "reduce_scatter");
        });
}

TEST_CASE("nccl: blocks of different lengths") {
    with_group(3, [](Member& m) {
        const auto me = static_cast<std::size_t>(m.rank);
        const std::vector<std::size_t> counts{1, 2, 3}, at{4, 0, 8};
        auto gather = shape_of(Collective::allgather, counts[me]);
        gather.output = {counts, at};
        const auto got = run(m, gather, std::vector(counts[me], static_cast<float>(me)), 12);
        const std::vector<float> wanted{1, 1, -1, -1, 0, -1, -1, -1, 2, 2, 2, -1};
        m.holds(got == wanted, "allgatherv");
        auto reduce = shape_of(Collective::reduce_scatter, counts[me]);
        reduce.input = {counts, {0, 1, 3}};
        const auto sums = run(m, reduce, {1, 2, 3, 4, 5, 6}, counts[me]);
        const std::vector<std::vector<float>> blocks{{3}, {6, 9}, {12, 15, 18}};
        m.holds(sums == blocks[me], "reduce_scatterv");
    });
}

TEST_CASE("nccl: a pre-multiplied sum takes each rank's own scalar") {
    with_group(2, [](Member& m) {
        auto shape = shape_of(Collective::allreduce, 2);
        const float scalar = m.rank == 0 ? 2 : 10;
        std::memcpy(shape.factor.emplace().data(), &scalar, sizeof scalar);
        m.holds(run(m, shape, {1, 3}, 2) == std::vector<float>{12, 36}, "premul");
    });
}

TEST_CASE("nccl: what a version lacks is refused with its name") {
    with_group(1, [](Member& m) {
        const auto refused = [&](Collective collective, Dtype dtype, Op op, const char* words) {
            auto shape = shape_of(collective, 1);
            shape.dtype = dtype;
            shape.op = op;
            const auto served = m.group->serves(shape);
            m.holds(!served && served.error().code == Code::unsupported &&
                        served.error().message.find(words) != std::string::npos,
                    words);
        };
        refused(Collective::scan, Dtype::float32, Op::sum, "no scan");
        refused(Collective::allreduce, Dtype::int16, Op::sum, "does not reduce int16");
        refused(Collective::allreduce, Dtype::int32, Op::bxor, "no bxor");
        refused(Collective::allreduce, Dtype::int32, Op::avg, "no avg of int32");
        m.holds(m.group->serves(shape_of(Collective::allreduce, 1)).has_value(), "floats");
        auto moved = shape_of(Collective::alltoall, 1);
        moved.dtype = Dtype::int16;
        m.holds(m.group->serves(moved).has_value(), "moving int16");
    });
}

TEST_CASE("nccl: a collective waits for the kernel before it on its stream") {
    with_group(2, [](Member& m) {
        const Floats data(m.rank, std::vector<float>(500, 1));
        auto operation = *m.group->bind(shape_of(Collective::allreduce, 500));
        for (int round = 0; round < 5; ++round) {
            test::HeldStream held(m.stream);
            fake_cuda_increment(m.stream, data.get(), 500, 3000);
            m.holds(operation->launch(data.get(), data.get(), m.stream, never).has_value(),
                    "launch");
            m.holds(operation->progress() == Code::in_progress, "it returned before it was done");
            held.let_go();
            m.holds(m.finish(*operation) == Code::ok, "it ends");
        }
        // x → 2 (x + 1), five times from 1
        m.holds(data.values() == std::vector<float>(500, 94), "the values");
    });
}

TEST_CASE("nccl: what is cancelled is aborted, and nothing touches its buffers any more") {
    with_group(2, [](Member& m) {
        auto first = *m.group->bind(shape_of(Collective::allreduce, 4));
        auto second = *m.group->bind(shape_of(Collective::broadcast, 4));
        const Floats data(m.rank, {1, 1, 1, 1});
        if (m.rank == 1) return;  // it never calls: the others would wait for ever
        m.holds(first->launch(data.get(), data.get(), m.stream, never).has_value(), "launch");
        m.holds(second->launch(data.get(), data.get(), m.stream, never).has_value(),
                "launch again");
        m.holds(first->may_cancel() && !second->may_cancel(), "the earlier one goes first");
        first->cancel();
        m.holds(second->may_cancel(), "then the later one");
        second->cancel();
        const auto again = first->launch(data.get(), data.get(), m.stream, never);
        m.holds(!again && again.error().message.find("aborted") != std::string::npos, "no more");
        fake_cuda_synchronize(m.stream);
        m.holds(data.values() == std::vector<float>(4, 1), "untouched");
    });
}

TEST_CASE("nccl: an asynchronous error ends the operation with NCCL's words") {
    const Told broken(fake_break_down, 1);
    with_group(2, [](Member& m) {
        auto operation = *m.group->bind(shape_of(Collective::allreduce, 4));
        const Floats data(m.rank, {1, 1, 1, 1});
        fake_cuda_increment(m.stream, data.get(), 4, m.rank == 0 ? 100'000 : 0);
        const auto launched = operation->launch(data.get(), data.get(), m.stream, never);
        m.holds(launched.has_value() || m.rank == 1, "launch");
        if (m.rank == 0) return operation->cancel();
        // The error may be there when the operation is launched: then nothing of it runs.
        const Poll poll = m.finish(*operation);
        const Error& error = poll.failure ? poll.failure->error
                             : launched   ? Error{Code::ok, nobody, 0, {}}
                                          : launched.error();
        m.holds(error.code == Code::system && !error.message.empty(), "it fails");
        operation->cancel();
    });
}

TEST_CASE("nccl: joining that fails somewhere fails, and leaves nothing") {
    {
        const Setting fail("FAKE_NCCL_FAIL_JOIN", "0");
        const auto id = library().make_id();
        const auto joined = library().join({0, 1, 0, *id, 20'000}, Deadline::after_ms(20'000));
        REQUIRE_FALSE(joined);
        REQUIRE(joined.error().message.find("internal error") != std::string::npos);
    }
    const auto id = library().make_id();
    const auto alone = library().join({0, 2, 0, *id, 5'000}, Deadline::after_ms(50));
    REQUIRE_FALSE(alone);
    REQUIRE(alone.error().code == Code::timeout);
    REQUIRE(live_communicators() == 0);
    REQUIRE(fake_cuda_live() == 0);
    REQUIRE(std::string(fake_cuda_violations()) == "");
}

TEST_CASE("nccl: a launch that NCCL refuses leaves nothing running") {
    const Told fail(fake_fail_launch, 0);
    with_group(1, [](Member& m) {
        auto operation = *m.group->bind(shape_of(Collective::allreduce, 4));
        const Floats data(m.rank, {1, 1, 1, 1});
        const auto launched = operation->launch(data.get(), data.get(), m.stream, never);
        m.holds(!launched && launched.error().message.find("internal error") != std::string::npos,
                "the launch fails");
        m.holds(operation->progress() == Code::ok && operation->may_cancel(), "nothing runs");
    });
}
