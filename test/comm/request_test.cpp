// Tests how a request reports that it is done: by test, descriptor and callback.
#include "run/request.h"

#include <poll.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "comm/job.h"

using namespace comm_test;

namespace {

/// The thread that completes it is held up just before the request says so.
void complete_late(Request& request) {
    request.completion.fire(Code::ok);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    request.code.store(Code::ok);
}

}  // namespace

TEST_CASE("request: is done for who tests it once its descriptor is readable") {
    expect_no_problem(run(Job{1}, [](Communicator& comm, Rank) -> std::string {
        Request request;
        const auto fd = request.completion.event_fd();
        if (!fd) return fd.error().message;
        if (comm.progress().wait(request, 0)) return "done before it was";
        std::thread completing([&] { complete_late(request); });
        pollfd wait{.fd = *fd, .events = POLLIN, .revents = 0};
        const bool readable = ::poll(&wait, 1, lost_ms) == 1;
        const bool done = comm.progress().wait(request, 0);
        completing.join();
        if (!readable) return "the descriptor is not readable";
        return done ? "" : "the descriptor is readable, and the request in progress";
    }));
}

TEST_CASE("request: its callback may start nothing and wait for nothing") {
    expect_no_problem(run(Job{2}, [](Communicator& comm, Rank) -> std::string {
        std::vector<float> x(10, 1.0f);
        Call barrier;
        barrier.collective = Collective::barrier;
        auto request = comm.calls().start(barrier, -1, -1, nullptr, nullptr);
        if (!request) return request.error().message;
        std::vector<Code> codes;
        const auto note = [&](const auto& result) {
            codes.push_back(result ? Code::ok : result.error().code);
        };
        const bool set = (*request)->completion.set_callback([&](Code) {
            note(comm.calls().run(sum_of(x.size()), x.data(), x.data()));
            note(comm.calls().start(sum_of(x.size()), -1, -1, x.data(), x.data()));
            note(comm.split(0, 0));
            note(comm.progress().may_wait(**request));
        });
        if (!set || !comm.progress().wait(**request, lost_ms)) return "the barrier did not end";
        for (const Code code : codes)
            if (code != Code::invalid) return "a call from the callback was not refused";
        if (codes.size() != 4) return "the callback was not called";
        const auto after = comm.calls().run(sum_of(x.size()), x.data(), x.data());
        return after ? "" : after.error().message;
    }));
}

TEST_CASE("request: a callback that takes longer than the heartbeat is no silence of its rank") {
    constexpr int64_t heartbeat_ms = 200;
    constexpr std::chrono::milliseconds longer(4 * heartbeat_ms);
    Job job{3, "tcp"};
    job.change = [&](Config& config) { config.heartbeat_ms = heartbeat_ms; };
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        // Rank 1 sets its callback before the barrier can end.
        if (rank != 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        Call barrier;
        barrier.collective = Collective::barrier;
        auto request = comm.calls().start(barrier, -1, -1, nullptr, nullptr);
        if (!request) return request.error().message;
        std::atomic<bool> called{false};
        const bool set = (*request)->completion.set_callback([&](Code) {
            if (rank == 1) std::this_thread::sleep_for(longer);
            called = true;
        });
        if (!set) called = true;
        // No thread waits, so the service thread finishes the operation and calls back.
        while (!called) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (!comm.progress().wait(**request, lost_ms)) return "the barrier did not end";
        std::vector<float> x(10, 1.0f);
        const auto after = comm.calls().run(sum_of(x.size()), x.data(), x.data());
        return after ? "" : after.error().message;
    }));
}

TEST_CASE("request: who tests it does not wait for a callback that runs") {
    expect_no_problem(run(Job{1}, [](Communicator& comm, Rank) -> std::string {
        Request request;
        std::atomic<bool> running{false}, tested{false};
        request.completion.set_callback([&](Code) {
            running = true;
            while (!tested) std::this_thread::yield();
        });
        std::thread completing([&] { complete_late(request); });
        while (!running) std::this_thread::yield();
        const bool during = comm.progress().wait(request, 0);
        tested = true;
        while (!request.completion.fired()) std::this_thread::yield();
        const bool after = comm.progress().wait(request, 0);
        completing.join();
        if (during) return "done in its own callback";
        return after ? "" : "the callback has run, and the request is in progress";
    }));
}

TEST_CASE("request: threads that ask for the descriptor at once get the same one") {
    constexpr std::size_t threads = 4, rounds = 300;
    std::array<Completion, rounds> completions;
    std::array<std::array<int, threads>, rounds> fds{};
    std::barrier start(threads);
    std::vector<std::thread> asking;
    for (std::size_t t = 0; t < threads; ++t)
        asking.emplace_back([&, t] {
            for (std::size_t round = 0; round < rounds; ++round) {
                start.arrive_and_wait();
                fds[round][t] = completions[round].event_fd().value_or(-1);
            }
        });
    for (std::thread& thread : asking) thread.join();
    for (std::size_t round = 0; round < rounds; ++round) {
        completions[round].fire(Code::ok);
        for (const int fd : fds[round]) {
            CAPTURE(round, fd, fds[round][0]);
            REQUIRE(fd == fds[round][0]);
            pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
            REQUIRE(::poll(&wait, 1, 0) == 1);
        }
    }
}
