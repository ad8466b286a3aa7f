// The first contact with a rank that is not there any more, or not within reach.
#include <atomic>

#include "comm/job.h"
#include "net/socket.h"

using namespace comm_test;

namespace {

Result<> pass(Communicator& comm, bool sends, Rank peer) {
    std::byte data{};
    Transfer transfer;
    transfer.sends = sends;
    transfer.peer = peer;
    transfer.memory = &data;
    transfer.bytes = 1;
    return comm.messages().run(transfer);
}

}  // namespace

TEST_CASE("messages: to a rank that has left fail at once, and those to others arrive") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    INFO(transport);
    std::atomic<bool> left{false};
    Job job{3, transport};
    job.change = [](Config& config) { config.timeout_ms = 150'000; };
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        if (rank == 2) {
            comm.destroy();
            left = true;
            return "";
        }
        while (!left) std::this_thread::yield();
        const auto to_other = [&] { return pass(comm, rank == 0, 1 - rank); };
        const int64_t start_ns = now_ns();
        const auto lost = pass(comm, true, 2);
        if (now_ns() - start_ns > soon_ns) return "it took as long as the deadline";
        if (lost) return "a message to nobody was sent";
        if (lost.error().code != Code::peer_lost || lost.error().rank != 2)
            return lost.error().message;
        if (auto passed = to_other(); !passed) return passed.error().message;
        // A collective needs everyone; a message between two ranks does not.
        float x = 1;
        const auto summed = comm.calls().run(sum_of(1), &x, &x);
        if (summed || summed.error().rank != 2) return "a sum without everyone";
        if (auto passed = to_other(); !passed) return passed.error().message;
        return "";
    }));
}

TEST_CASE("messages: where a peer listens on its loopback only, the error says what to do there") {
    const auto outside = net::choose_address({});
    REQUIRE(outside);
    if (net::is_loopback(*outside, {}).value()) {
        WARN("skipped: this machine has no network but its loopback");
        return;
    }
    Job job{2, "tcp"};
    job.change = [](Config& config) {
        config.secret = "s3cret";
        config.host_id = config.rank == 0 ? "here" : "there";
        if (config.rank == 1) config.iface = "lo";
    };
    const auto problems = run(job, [](Communicator& comm, Rank rank) -> std::string {
        float x = 1;
        const auto summed = comm.calls().run(sum_of(1), &x, &x);
        return summed ? fmt::format("rank {} could sum", rank) : error_text(summed.error());
    });
    INFO(problems[0]);
    CHECK(problems[0].find("on its host's loopback only") != std::string::npos);
    CHECK(problems[0].find("TUTTI_IFACE") != std::string::npos);
    CHECK(problems[0].find("TUTTI_TRANSPORT") == std::string::npos);
}
