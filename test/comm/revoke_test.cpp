// Tests that a revoke ends all work of a communicator on every rank, and of no other communicator.
#include <atomic>
#include <latch>

#include "comm/job.h"

using namespace comm_test;

namespace {

/// Ways in which ranks make progress.
struct Variant {
    const char* name;
    const char* transport;
    void (*change)(Config&);
};
constexpr Variant variants[] = {
    {"inproc", "inproc", [](Config&) {}},
    {"shm", "shm", [](Config&) {}},
    {"tcp", "tcp", [](Config&) {}},
    {"strict", "shm", [](Config& config) { config.check = Check::strict; }},
    {"manual progress", "tcp", [](Config& config) { config.progress = ProgressMode::manual; }},
};

std::string not_revoked(const std::string& call, const Error& error, Rank revoker) {
    const std::string who = fmt::format("rank {} revoked the communicator", revoker);
    const bool right = error.code == Code::revoked && error.rank == revoker &&
                       contains(error_text(error), who) &&
                       contains(error_text(error), "What to do: call tutti_comm_shrink");
    return right ? "" : fmt::format("{}: {}: {}", call, code_name(error.code), error_text(error));
}

template <typename Made>
std::string not_revoked(const std::string& call, const Made& made, Rank revoker) {
    return made ? call + " succeeded" : not_revoked(call, made.error(), revoker);
}

std::unique_ptr<Transfer> message(bool sends, Rank peer, std::vector<std::byte>& data) {
    auto transfer = std::make_unique<Transfer>();
    transfer->sends = sends;
    transfer->peer = peer;
    transfer->user_tag = 7;
    transfer->memory = data.data();
    transfer->bytes = data.size();
    return transfer;
}

std::string sum(Communicator& comm) {
    std::vector<float> x(1000, 1.0f);
    const auto done = comm.calls().run(sum_of(x.size()), x.data(), x.data());
    if (!done) return done.error().message;
    return x.back() == static_cast<float>(comm.size()) ? "" : "a wrong sum";
}

/// The operations that a rank has under way when the last rank, which takes part in none of them,
/// revokes.
class Work {
public:
    explicit Work(Communicator& comm) : comm_(comm) {}

    std::string bind_plan() {
        auto plan = comm_.calls().make_plan(sum_of(x_.size()), -1);
        if (!plan) return plan.error().message;
        plan_ = std::move(*plan);
        const auto done = comm_.calls().run(*plan_, x_.data(), x_.data());
        return done ? "" : done.error().message;
    }
    std::string start() {
        const Rank other = comm_.size() - 1;
        for (std::vector<float>* x : {&y_, &z_})
            take("allreduce", comm_.calls().start(sum_of(x->size()), -1, -1, x->data(), x->data()));
        take("plan", comm_.calls().start(*plan_, x_.data(), x_.data()));
        take("send", comm_.messages().start(message(true, other, sent_), -1));
        take("recv", comm_.messages().start(message(false, other, received_), -1));
        take("recv from any rank", comm_.messages().start(message(false, any_source, any_), -1));
        return problem_;
    }
    /// All operations have ended with the revoke.
    std::string wait(Rank revoker) {
        for (auto& [call, request] : requests_) {
            if (!comm_.progress().wait(*request, lost_ms)) return call + " did not end";
            if (request->code == Code::ok) return call + " succeeded";
            const auto problem = not_revoked(call, request->error, revoker);
            if (!problem.empty()) return problem;
        }
        return "";
    }
    /// Calls from now on end with it, too.
    std::string call_again(Rank revoker) {
        const Rank other = comm_.size() - 1 - comm_.rank();
        Transfer receive, send;
        receive.peer = send.peer = other;
        receive.memory = send.memory = any_.data();
        receive.bytes = send.bytes = any_.size();
        send.sends = true;
        std::string all;
        const auto note = [&](const char* call, const auto& made) {
            if (all.empty()) all = not_revoked(call, made, revoker);
        };
        note("an allreduce", comm_.calls().run(sum_of(x_.size()), x_.data(), x_.data()));
        note("a call of a new shape", comm_.calls().run(sum_of(77), x_.data(), x_.data()));
        note("a plan's run", comm_.calls().run(*plan_, x_.data(), x_.data()));
        note("a new plan", comm_.calls().make_plan(sum_of(78), -1));
        note("a send", comm_.messages().run(send));
        note("a receive", comm_.messages().run(receive));
        note("a split", comm_.split(0, 0));
        note("a dup", comm_.dup());
        return all;
    }

private:
    void take(const char* call, Result<std::unique_ptr<Request>> started) {
        if (started)
            requests_.emplace_back(call, std::move(*started));
        else if (problem_.empty())
            problem_ = started.error().message;
    }

    Communicator& comm_;
    std::unique_ptr<Plan> plan_;
    std::vector<float> x_ = std::vector<float>(1000, 1.0f), y_ = std::vector<float>(10, 1.0f),
                       z_ = std::vector<float>(300'000, 1.0f);
    // A large send waits for its receive.
    std::vector<std::byte> sent_ = std::vector<std::byte>(1'000'000),
                           received_ = std::vector<std::byte>(100),
                           any_ = std::vector<std::byte>(100);
    std::vector<std::pair<std::string, std::unique_ptr<Request>>> requests_;
    std::string problem_;
};

}  // namespace

TEST_CASE("revoke: ends requests, plans and messages on every rank, and not those of a copy") {
    constexpr Rank ranks = 3, revoker = ranks - 1;
    for (const Variant& variant : variants) {
        INFO(variant.name);
        std::atomic<int> waiting{0};
        Job job{ranks, variant.transport};
        job.change = variant.change;
        expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
            const auto copy = comm.dup();
            if (!copy) return copy.error().message;
            Work work(comm);
            if (auto problem = work.bind_plan(); !problem.empty()) return problem;
            if (rank == revoker) {
                // With manual progress the others need this rank for their first contact with it.
                const bool wait = eventually([&] {
                    comm.progress().advance();
                    return waiting == revoker;
                });
                if (!wait) return "the others do not wait";
                comm.revoke();
            } else {
                const auto problem = work.start();
                ++waiting;
                if (!problem.empty()) return problem;
            }
            if (auto problem = work.wait(revoker); !problem.empty()) return problem;
            // The revoke has reached a rank when one of its calls has ended.
            if (auto problem = work.call_again(revoker); !problem.empty()) return problem;
            if (auto problem = sum(**copy); !problem.empty()) return "the copy: " + problem;
            const auto part = (*copy)->split(rank % 2, rank);
            if (!part) return "a split of the copy: " + part.error().message;
            if (auto problem = sum(**part); !problem.empty()) return "its part: " + problem;
            (*part)->destroy();
            (*copy)->destroy();
            return "";
        }));
    }
}

TEST_CASE("revoke: replaces the failure that a deadline has caused, and names it") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    INFO(transport);
    std::latch timed_out(2), revoked(1);
    expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
        if (auto problem = sum(comm); !problem.empty()) return problem;
        std::vector<float> x(10, 1.0f);
        if (rank != 2) {
            const auto request = comm.calls().start(sum_of(10), -1, 200, x.data(), x.data());
            if (!request) return request.error().message;
            comm.progress().wait(**request, -1);
            timed_out.count_down();
            if ((*request)->code != Code::timeout) return (*request)->error.message;
        }
        timed_out.wait();
        if (rank == 1) {
            comm.revoke();
            revoked.count_down();
        }
        revoked.wait();
        Error error;
        const bool heard = eventually([&] {
            const auto done = comm.calls().run(barrier(), nullptr, nullptr);
            if (!done) error = done.error();
            return done || error.code == Code::revoked;
        });
        if (!heard) return "still " + error.message;
        if (error.code != Code::revoked) return "a barrier succeeded";
        if (!contains(error.message, "(after: ") || !contains(error.message, "timed out after 200"))
            return error.message;
        return not_revoked("a barrier", error, 1);
    }));
}

// A rank names the revoke that reaches it first, because its operations end with that one at once:
// an agreement on one of them would come too late.
TEST_CASE("revoke: two ranks at once end a waiting call on every rank, from other threads") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        std::latch together(2);
        std::atomic<int> called{0};
        expect_no_problem(run({4, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            if (auto problem = sum(comm); !problem.empty()) return problem;
            std::thread revoker;
            if (rank < 2)
                revoker = std::thread([&] {
                    eventually([&] { return called == 4; });
                    together.arrive_and_wait();
                    comm.revoke();
                });
            ++called;
            // Rank 3 makes another call, so that no barrier ends.
            std::vector<std::byte> data(10);
            const auto receive = message(false, 0, data);
            const auto done = rank == 3 ? comm.messages().run(*receive)
                                        : comm.calls().run(barrier(), nullptr, nullptr);
            if (revoker.joinable()) revoker.join();
            if (done) return "a call succeeded without the others";
            const Rank named = done.error().rank;
            if (named != 0 && named != 1) return done.error().message;
            return not_revoked("the call", done.error(), named);
        }));
    }
}
