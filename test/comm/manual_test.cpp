// Programs that sleep on the descriptor of a communicator and move things themselves.
#include <poll.h>

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "comm/job.h"
#include "p2p/transfer.h"

using namespace comm_test;

namespace {

Job by_hand(const char* transport) {
    Job job{2, transport};
    job.change = [](Config& config) {
        config.progress = ProgressMode::manual;
        config.nrings = 2;
    };
    return job;
}

void settle_down() {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
}

/// As a program's loop does it, with the descriptor that it has asked for once: sleeps, and moves
/// all of its communicators.
std::string sleep_until_done(int fd, const std::vector<Communicator*>& comms,
                             const Request& request) {
    while (!request.done()) {
        pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
        if (::poll(&wait, 1, lost_ms) == 0) return "nobody woke it";
        for (Communicator* comm : comms) comm->progress().advance();
    }
    return request.error.message;
}

/// A first contact needs both sides.
std::string meet(Communicator& comm) {
    for (int stream = 0; stream < 2; ++stream) {
        float x = 1.0f;
        auto started = comm.calls().start(sum_of(1), stream, -1, &x, &x);
        if (!started) return started.error().message;
        comm.progress().wait(**started, -1);
    }
    return "";
}

/// Signals between the two ranks outside of tutti, so that they wake no thread in it.
struct Signs {
    std::atomic<int> begun{0}, over{0};  // the last round of which rank 0 has done so
    std::atomic<bool> broken{false};
};

/// Rank 0 has begun a sum on late that rank 1 sends its part of after that, and goes on with
/// between; then all that is left to do is to sleep. Rank 1 stays away from its communicators
/// meanwhile, so that nothing of its own wakes rank 0.
template <typename Between>
std::string round(int fd, Communicator& late, const std::vector<Communicator*>& comms, Signs& signs,
                  int number, Between between) {
    const bool sleeps = late.rank() == 0;
    const auto await = [&](const std::atomic<int>& what) {
        while (what < number && !signs.broken) std::this_thread::yield();
    };
    if (!sleeps) await(signs.begun);
    std::vector<float> x(100, 1.0f);
    auto started = late.calls().start(sum_of(x.size()), 1, -1, x.data(), x.data());
    if (!started) return started.error().message;
    if (sleeps) signs.begun = number;
    if (sleeps) settle_down();
    std::string problem = between();
    if (sleeps && problem.empty()) problem = sleep_until_done(fd, comms, **started);
    if (!problem.empty()) signs.broken = true;
    if (sleeps) signs.over = number;
    await(signs.over);
    late.progress().wait(**started, -1);
    return problem.empty() && x.back() != 2.0f ? "wrong sum" : problem;
}

template <typename Between>
std::string all_rounds(Communicator& late, const std::vector<Communicator*>& comms, Signs& signs,
                       Between between) {
    int fd = -1;  // the same of all
    for (Communicator* comm : comms) {
        if (auto problem = meet(*comm); !problem.empty()) return problem;
        fd = comm->progress().fd();
    }
    constexpr int rounds = 20;
    for (int number = 1; number <= rounds && !signs.broken; ++number)
        if (auto problem = round(fd, late, comms, signs, number, between); !problem.empty())
            return problem;
    return "";
}

}  // namespace

TEST_CASE("manual: a blocking call loses no wake-up of what else is under way") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        Signs signs;
        expect_no_problem(run(by_hand(transport), [&](Communicator& comm, Rank) {
            return all_rounds(comm, {&comm}, signs, [&]() -> std::string {
                float x = 1.0f;
                const auto done = comm.calls().run(sum_of(1), &x, &x);
                return done ? "" : done.error().message;
            });
        }));
    }
}

TEST_CASE("manual: moving one communicator loses no wake-up of another") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        Signs signs;
        expect_no_problem(run(by_hand(transport), [&](Communicator& comm, Rank) -> std::string {
            auto part = comm.split(0, comm.rank());
            if (!part) return part.error().message;
            const auto problem = all_rounds(**part, {&comm, part->get()}, signs, [&] {
                if (comm.rank() == 0) comm.progress().advance();
                return std::string();
            });
            (*part)->destroy();
            return problem;
        }));
    }
}

// Rank 1 comes to what rank 0 waits for only when what rank 0 has under way elsewhere is done.
TEST_CASE("manual: who waits moves its other communicators too") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        Job job = by_hand(transport);
        job.change = [change = job.change](Config& config) {
            change(config);
            config.timeout_ms = 20'000;
        };
        expect_no_problem(run(job, [](Communicator& comm, Rank rank) -> std::string {
            auto part = comm.split(0, rank);
            if (!part) return part.error().message;
            std::vector<float> x(std::size_t{1} << 20, 1.0f);
            for (int i = 0; i < 3; ++i) {
                auto started = (*part)->calls().start(sum_of(x.size()), 0, -1, x.data(), x.data());
                if (!started) return started.error().message;
                if (rank == 1) (*part)->progress().wait(**started, -1);
                float y = 1.0f;
                if (auto done = comm.calls().run(sum_of(1), &y, &y); !done)
                    return done.error().message;
                (*part)->progress().wait(**started, -1);
                if ((*started)->code != Code::ok) return (*started)->error.message;
            }
            (*part)->destroy();
            return x.back() == 8.0f ? "" : "wrong sum";
        }));
    }
}

TEST_CASE("manual: a receive does not wait for a sender that computes") {
    constexpr Rank ranks = 5;
    constexpr int64_t waited_ns = 500'000'000;  // a receive that waits takes a second
    for (const char* transport : transports_under_test) {
        INFO(transport);
        std::atomic<bool> posted{false};
        Job job = by_hand(transport);
        job.ranks = ranks;
        expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
            std::vector<std::unique_ptr<Request>> requests;
            std::vector<std::byte> data(100'000 * std::size_t{ranks});
            const auto start = [&](bool sends, Rank peer) {
                auto transfer = std::make_unique<Transfer>();
                transfer->sends = sends;
                transfer->peer = peer;
                transfer->bytes = 100'000;
                transfer->memory = data.data() + transfer->bytes * static_cast<std::size_t>(peer);
                auto started = comm.messages().start(std::move(transfer), -1);
                if (started) requests.push_back(std::move(*started));
                return started ? std::string() : started.error().message;
            };
            while (rank != 0 && !posted) std::this_thread::yield();
            // The machine may be busy, but hardly for each of them.
            int64_t shortest_ns = INT64_MAX;
            std::string problem;
            for (Rank peer = rank == 0 ? 1 : 0; peer < (rank == 0 ? ranks : 1); ++peer) {
                const int64_t began_ns = now_ns();
                if (problem.empty()) problem = start(rank != 0, peer);
                shortest_ns = std::min(shortest_ns, now_ns() - began_ns);
            }
            if (rank == 0) posted = true;
            for (const auto& request : requests) {
                comm.progress().wait(*request, -1);
                if (problem.empty()) problem = request->error.message;
            }
            if (rank == 0 && problem.empty() && shortest_ns > waited_ns)
                problem = fmt::format("the quickest took {} ms", ns_to_ms(shortest_ns));
            return problem;
        }));
    }
}
