// Messages on device memory that go from and to it as they are, where UCX can.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>

#include "gpu/device_group_batch.h"
#include "nccl/knowing_ucx.h"
#include "nccl/messages.h"

using namespace gpu_test;

namespace {

constexpr std::size_t pieces = 3;  // of a large message
constexpr std::size_t large = pieces * 64 * 1024, small = 1'000;

Job ucx_job(Rank ranks) {
    return {.ranks = ranks, .change = [](Config& c) {
                c.device = DeviceMode::staged;
                c.transports = {"ucx"};
            }};
}

/// Counts, since it was made, messages straight from and to devices, and bytes that were copied.
class Counts {
public:
    int sent() const { return knowing_ucx.sent - sent_; }
    int fetched() const { return knowing_ucx.fetched - fetched_; }
    std::size_t copied() const { return fake_cuda_copied - copied_; }

private:
    const int sent_ = knowing_ucx.sent, fetched_ = knowing_ucx.fetched;
    const std::size_t copied_ = fake_cuda_copied;
};

/// UCX without CUDA, for a scope.
struct Unknowing {
    Unknowing() { knowing_ucx.knows = false; }
    ~Unknowing() { knowing_ucx.knows = true; }
};

Result<std::unique_ptr<Request>> start_on_host(Ranked& r, bool sends, Rank peer,
                                               std::vector<float>& memory, int32_t tag = 0) {
    auto t = std::make_unique<Transfer>();
    t->sends = sends;
    t->peer = peer;
    t->user_tag = tag;
    t->memory = reinterpret_cast<std::byte*>(memory.data());
    t->bytes = memory.size() * sizeof(float);
    t->dtype = Dtype::float32;
    return r.comm->messages().start(std::move(t), -1);
}
Result<> on_host(Ranked& r, bool sends, Rank peer, std::vector<float>& memory) {
    return r.finish(start_on_host(r, sends, peer, memory));
}

/// Rank 0's values to rank 1, each in the memory that is said.
void pass(Ranked& r, std::size_t floats, bool from_device, bool to_device, std::size_t room = 0) {
    room = std::max(room, floats);
    std::vector<float> values = values_of(0, floats), wanted(room, -1);
    if (r.rank == 0) {
        const OnDevice data(0, values);
        if (from_device)
            r.works(both_ways(r, {send_of(data, floats, 1)}), "send");
        else
            r.works(on_host(r, true, 1, values), "send");
        return;
    }
    const OnDevice data(1, wanted);
    std::vector<float> got = wanted;
    Received told;
    if (to_device) {
        r.works(both_ways(r, {receive_of(data, room, 0, 0, &told)}), "receive");
        r.holds(told.source == 0 && told.count == floats, "the status");
        got = data.floats();
    } else {
        r.works(on_host(r, false, 0, got), "receive");
    }
    std::copy(values.begin(), values.end(), wanted.begin());
    r.holds(got == wanted, "the values, and what is behind them");
}

}  // namespace

TEST_CASE("direct messages: nothing is copied where UCX takes a device's memory") {
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) {
        for (int i = 0; i < 3; ++i) pass(r, large, true, true);
    });
    REQUIRE(counts.sent() == 3 * pieces);
    REQUIRE(counts.fetched() == 3 * pieces);
    REQUIRE(counts.copied() == 0);
}

TEST_CASE("direct messages: a UCX without CUDA is given pinned memory") {
    const Unknowing ucx;
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) { pass(r, large, true, true); });
    REQUIRE(counts.sent() == 0);
    REQUIRE(counts.fetched() == 0);
    REQUIRE(counts.copied() == 2 * large * sizeof(float));
}

TEST_CASE("direct messages: small ones go through pinned memory, whatever the buffer's length") {
    const Counts counts;
    std::barrier together(2);
    run(ucx_job(2), [&](Ranked& r) {
        pass(r, small, true, true);
        pass(r, small, true, true, large);
        pass(r, small, false, true, large);
        pass(r, 0, true, true, large);
        // A receive that meets nobody any more is given pinned memory.
        together.arrive_and_wait();
    });
    REQUIRE(counts.sent() == 0);
    REQUIRE(counts.fetched() == 0);
    REQUIRE(counts.copied() == 5 * small * sizeof(float));
}

TEST_CASE("direct messages: shorter than the buffer, whose rest is left alone") {
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) { pass(r, large - 4'567, true, true, large + 99); });
    REQUIRE(counts.copied() == 0);
}

TEST_CASE("direct messages: the other end may be on the host") {
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) {
        pass(r, large, true, false);
        pass(r, large, false, true);
    });
    REQUIRE(counts.sent() == pieces);
}

TEST_CASE("direct messages: from the host, what UCX sends with its header is brought there") {
    const Setting eager("UCX_RNDV_THRESH", "inf");
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) {
        pass(r, large, false, true);
        pass(r, large, true, true);
    });
    REQUIRE(counts.copied() == large * sizeof(float));
}

TEST_CASE("direct messages: over sockets UCX is given pinned memory") {
    const Setting sockets("UCX_TLS", "tcp,self");
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) { pass(r, large, true, true); });
    REQUIRE(counts.sent() == 0);
    REQUIRE(counts.fetched() == 0);
}

TEST_CASE("direct messages: received from anyone through pinned memory") {
    const Counts counts;
    run(ucx_job(3), [](Ranked& r) {
        if (r.rank > 0) {
            const OnDevice mine(r.rank, values_of(r.rank, large));
            r.works(both_ways(r, {send_of(mine, large, 0)}), "send");
            return;
        }
        for (Rank i = 1; i < r.size; ++i) {
            const OnDevice got(0, std::vector<float>(large));
            Received told;
            r.works(both_ways(r, {receive_of(got, large, any_source, 0, &told)}), "receive");
            r.holds(got.floats() == values_of(told.source, large), "the values");
        }
    });
    REQUIRE(counts.sent() == 2 * pieces);
    REQUIRE(counts.fetched() == 0);
}

TEST_CASE("direct messages: rings and all pairs at once") {
    for (const Rank ranks : {2, 3})
        run(ucx_job(ranks), [](Ranked& r) {
            for (const std::size_t floats : {std::size_t{1}, std::size_t{9'000}, large})
                ring(r, floats);
            for (int round = 0; round < 3; ++round) all_pairs(r, round);
        });
}

TEST_CASE("direct messages: many at once between two ranks, and each other way of the host's") {
    run(ucx_job(2), [](Ranked& r) {
        constexpr int many = 12;
        const Rank peer = 1 - r.rank;
        std::vector<std::unique_ptr<OnDevice>> sent, got;
        std::vector<OffloadMessage> group;
        for (int i = 0; i < many; ++i) {
            const std::size_t floats = 8'000 + static_cast<std::size_t>(i) * 10'000;
            sent.push_back(std::make_unique<OnDevice>(r.rank, values_of(i + r.rank, floats)));
            got.push_back(std::make_unique<OnDevice>(r.rank, std::vector<float>(floats)));
            group.push_back(send_of(*sent.back(), floats, peer, i));
            group.insert(group.begin(), receive_of(*got.back(), floats, peer, i));
        }
        std::vector<float> values = values_of(40 + r.rank, large), theirs(large);
        auto device = r.comm->offload().start(group, -1, nullptr);
        auto out = start_on_host(r, true, peer, values, many);
        r.works(r.finish(start_on_host(r, false, peer, theirs, many)), "received on the host");
        r.works(r.finish(std::move(out)), "sent on the host");
        r.works(r.finish(std::move(device)), "on the device");
        r.holds(theirs == values_of(40 + peer, large), "the host's values");
        for (int i = 0; i < many; ++i) {
            const auto at = static_cast<std::size_t>(i);
            r.holds(got[at]->floats() == values_of(i + peer, got[at]->floats().size()), "values");
        }
    });
}

// Rank 1 is late, and the sender's stream goes on to write there. A stream that does not wait for
// the send has written before rank 1 receives.
void send_between_kernels(Ranked& r, bool right, std::atomic<int>& written) {
    if (r.rank == 1) {
        if (right) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        if (!right) wait_for(written, 1);
        const OnDevice got(1, std::vector<float>(large));
        r.works(both_ways(r, {receive_of(got, large, 0)}), "receive");
        r.holds((got.floats() == std::vector<float>(large, 2)) == right, "the values");
        return;
    }
    const device::DeviceStream stream = stream_of(r);
    const OnDevice data(0, std::vector<float>(large, 1));
    fake_cuda_increment(stream.handle(), data.get(), large, 20'000);
    auto request = r.comm->offload().start({send_of(data, large, 1)}, -1, stream.handle());
    fake_cuda_increment(stream.handle(), data.get(), large, 0);
    if (!right) fake_cuda_synchronize(stream.handle());
    written = 1;
    r.works(r.finish(std::move(request)), "send");
    fake_cuda_synchronize(stream.handle());
    r.holds(data.floats() == std::vector<float>(large, 3), "what comes after");
}

TEST_CASE("direct messages: a send leaves after what is before it, and what is behind it waits") {
    std::atomic<int> written{0};
    run(ucx_job(2), [&](Ranked& r) { send_between_kernels(r, true, written); });
}

#ifndef __SANITIZE_THREAD__  // a race on purpose
TEST_CASE("direct messages: a stream that does not wait for its send gives other values") {
    const Told drop(fake_drop_words, 0);
    std::atomic<int> written{0};
    run(ucx_job(2), [&](Ranked& r) { send_between_kernels(r, false, written); });
}
#endif

TEST_CASE("direct messages: a receive waits for what is before it, and what is behind it waits") {
    run(ucx_job(2), [](Ranked& r) {
        const device::DeviceStream stream = stream_of(r);
        const OnDevice data(r.rank, std::vector<float>(large, 5));
        if (r.rank == 0) {
            r.works(both_ways(r, {send_of(data, large, 1)}), "send");
            return;
        }
        // Would add to what was received if that came too early.
        fake_cuda_increment(stream.handle(), data.get(), large, 100'000);
        auto request = r.comm->offload().start({receive_of(data, large, 0)}, -1, stream.handle());
        fake_cuda_increment(stream.handle(), data.get(), large, 0);
        r.works(r.finish(std::move(request)), "receive");
        fake_cuda_synchronize(stream.handle());
        r.holds(data.floats() == std::vector<float>(large, 6), "the values");
    });
}

TEST_CASE("direct messages: sent from where another of the group is received, a copy is sent") {
    run(ucx_job(2), [](Ranked& r) {
        const OnDevice data(r.rank, values_of(r.rank, large));
        const Rank peer = 1 - r.rank;
        r.works(both_ways(r, {send_of(data, large, peer), receive_of(data, large, peer)}), "swap");
        r.holds(data.floats() == values_of(peer, large), "the other's values");
    });
}

/// Each called by itself and launched together.
void gather(Ranked& r, const std::vector<OffloadMessage>& messages) {
    const device::DeviceStream stream = stream_of(r);
    std::vector<Result<std::unique_ptr<Request>>> all;
    DeviceGroupBatch::here().open();
    for (const OffloadMessage& one : messages)
        all.push_back(r.comm->offload().start(std::vector{one}, -1, stream.handle()));
    r.works(DeviceGroupBatch::here().close(), "launch");
    for (auto& request : all) r.works(r.finish(std::move(request)), "a message");
}

TEST_CASE("direct messages: gathered, both ways, in any order of the calls") {
    const Counts counts;
    run(ucx_job(2), [](Ranked& r) {
        const Rank peer = 1 - r.rank;
        const OnDevice mine(r.rank, values_of(r.rank, large)),
            other(r.rank, values_of(r.rank + 5, large)), theirs(r.rank, std::vector<float>(large)),
            last(r.rank, std::vector<float>(large));
        gather(r, {receive_of(theirs, large, peer, 1), send_of(mine, large, peer, 1),
                   send_of(other, large, peer, 2), receive_of(last, large, peer, 2)});
        r.holds(theirs.floats() == values_of(peer, large), "the other's values");
        r.holds(last.floats() == values_of(peer + 5, large), "its other values");
    });
    REQUIRE(counts.sent() == 4 * pieces);
    REQUIRE(counts.fetched() == 4 * pieces);
    REQUIRE(counts.copied() == 0);
}

// As they always did: what is sent is what was there before.
TEST_CASE("direct messages: gathered and of the same memory, the later goes by a copy") {
    for (const bool receives_first : {true, false})
        run(ucx_job(2), [&](Ranked& r) {
            const Rank peer = 1 - r.rank;
            const OnDevice data(r.rank, values_of(r.rank, large));
            const auto out = send_of(data, large, peer), in = receive_of(data, large, peer);
            gather(r, receives_first ? std::vector{in, out} : std::vector{out, in});
            r.holds(data.floats() == values_of(peer, large), "the other's values");
        });
}

TEST_CASE("direct messages: one that does not fit is its own trouble") {
    run(ucx_job(2), [](Ranked& r) {
        const OnDevice a(r.rank, values_of(r.rank, large)), b(r.rank, values_of(r.rank, large));
        if (r.rank == 0) {
            r.fails(both_ways(r, {send_of(a, large, 1, 1), send_of(b, large, 1, 2)}), Code::invalid,
                    "could not take");
        } else {
            const OnDevice c(1, std::vector<float>(large)), d(1, std::vector<float>(large));
            r.fails(both_ways(r, {receive_of(c, large - 1, 0, 1), receive_of(d, large, 0, 2)}),
                    Code::invalid, "rank 0 sent");
            r.holds(c.floats() == std::vector<float>(large), "untouched");
            r.holds(d.floats() == values_of(0, large), "the other one's values");
        }
        ring(r, large);
    });
}

TEST_CASE("direct messages: deadlines and an abort end them, and the stream goes on") {
    for (const bool sends : {false, true})
        for (const bool aborts : {false, true}) {
            std::atomic<int> ready{0}, over{0};
            run(ucx_job(2), [&](Ranked& r) {
                ring(r, 100);
                ++ready;
                if (r.rank == 1) {
                    wait_for(ready, 3);
                    if (aborts) r.comm->abort();
                    return wait_for(over, 1);
                }
                const device::DeviceStream stream = stream_of(r);
                const OnDevice data(0, std::vector<float>(large, 1));
                auto request = r.comm->offload().start(
                    {sends ? send_of(data, large, 1) : receive_of(data, large, 1)},
                    aborts ? -1 : 300, stream.handle());
                fake_cuda_increment(stream.handle(), data.get(), large, 0);
                ++ready;
                r.fails(r.finish(std::move(request)), aborts ? Code::aborted : Code::timeout,
                        aborts ? "tutti_comm_abort" : "300 ms");
                fake_cuda_synchronize(stream.handle());
                r.holds(data.floats() == std::vector<float>(large, 2), "what comes after");
                over = 1;
            });
        }
}

// ---- a peer that dies --------------------------------------------------------------------------

namespace {

Result<std::shared_ptr<Communicator>> join_two(Rank rank, const std::string& folder) {
    Config config;
    config.rank = rank;
    config.size = 2;
    config.store = "file://" + folder;
    config.transports = {"ucx"};
    config.timeout_ms = 60'000;
    config.device = DeviceMode::staged;
    config.cuda_library = std::getenv("TUTTI_FAKE_CUDA");
    return Communicator::create(config, nullptr);
}

/// The error of a send to rank 1, which is killed when it has begun to fetch.
Error send_to_one_that_dies(bool on_device) {
    char name[] = "/tmp/tutti-gpu-test-XXXXXX";
    const std::string folder = ::mkdtemp(name);
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("TUTTI_TEST_FOLDER", folder.c_str(), 1);
        ::execl("/proc/self/exe", "test", "[.dies]", nullptr);
        ::_exit(127);
    }
    Error error;
    {
        const auto comm = join_two(0, folder);
        REQUIRE(comm);
        Ranked r{.rank = 0, .size = 2, .comm = *comm, .config = nullptr, .problem = ""};
        std::vector<float> values = values_of(0, large);
        const OnDevice data(0, values);
        const auto sent =
            on_device ? both_ways(r, {send_of(data, large, 1)}) : on_host(r, true, 1, values);
        REQUIRE_FALSE(sent);
        error = sent.error();
        (*comm)->destroy();
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    std::filesystem::remove_all(folder);
    return error;
}

}  // namespace

TEST_CASE("direct messages: the rank that dies in the middle of one", "[.dies]") {
    const auto comm = join_two(1, std::getenv("TUTTI_TEST_FOLDER"));
    REQUIRE(comm);
    Ranked r{.rank = 1, .size = 2, .comm = *comm, .config = nullptr, .problem = ""};
    const OnDevice data(1, std::vector<float>(large));
    knowing_ucx.dies_after = 2;
    (void)both_ways(r, {receive_of(data, large, 0)});
}

TEST_CASE("direct messages: a peer that dies in the middle of one is named, as on the host") {
    const Error host = send_to_one_that_dies(false), device = send_to_one_that_dies(true);
    REQUIRE(device.code == Code::peer_lost);
    REQUIRE(device.rank == 1);
    REQUIRE(host.code == device.code);
    REQUIRE(host.rank == device.rank);
    REQUIRE(std::string(fake_cuda_violations()) == "");
    REQUIRE(fake_cuda_live() == 0);
}
