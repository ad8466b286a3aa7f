// A rank that relayed control messages between two others has left: messages still reach both.
#include <array>
#include <atomic>
#include <chrono>

#include "comm/job.h"
#include "p2p/transfer.h"

namespace {

using namespace comm_test;

/// Waits for a condition that other ranks meet. With manual progress it advances this rank.
template <typename Done>
bool wait_for(Communicator& comm, Done done) {
    const Deadline deadline = Deadline::after_ms(30'000);
    while (!done()) {
        if (deadline.passed()) return false;
        comm.progress().advance();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

std::string sum_once(Communicator& comm, std::size_t count) {
    std::vector<float> x(count, 1.0f);
    const auto done = comm.calls().run(sum_of(count), x.data(), x.data());
    if (!done) return done.error().message;
    return x.back() == static_cast<float>(comm.size()) ? "" : "a wrong sum";
}

/// Calls with other counts than the others' fail everywhere, and the ones after them match again.
std::string disagree(Communicator& comm, Rank other) {
    std::vector<float> x(2000, 1.0f);
    const auto done =
        comm.calls().run(sum_of(comm.rank() == other ? 2000 : 1000), x.data(), x.data());
    if (done) return "the mismatch was not noticed";
    if (done.error().code != Code::mismatch) return done.error().message;
    return sum_once(comm, 500);
}

}  // namespace

TEST_CASE("communicator: parts hear all their ranks when others of the job have left") {
    // The job's tree has ranks 1 to 8 below 0, and 9 to 16 below 1; without 0, news from 9 to 2
    // come back from 1, which is no member of every part.
    struct Case {
        ProgressMode progress;
        Check check;
        int parts;  // of the ranks that stay
    };
    const auto kind = GENERATE(
        Case{ProgressMode::thread, Check::frames, 1}, Case{ProgressMode::thread, Check::strict, 1},
        Case{ProgressMode::thread, Check::frames, 2}, Case{ProgressMode::manual, Check::frames, 2});
    INFO("manual " << (kind.progress == ProgressMode::manual) << ", strict "
                   << (kind.check == Check::strict) << ", parts " << kind.parts);
    Job job{13, "inproc"};
    job.change = [&](Config& config) {
        config.progress = kind.progress;
        config.check = kind.check;
        config.timeout_ms = 20'000;
    };
    std::atomic<bool> left{false};
    std::atomic<int> agreed{0}, finished{0};
    const auto everyone = [&](const std::atomic<int>& count) { return count == job.ranks - 1; };
    expect_no_problem(run(job, [&](Communicator& world, Rank rank) -> std::string {
        auto made = world.split(rank == 0 ? -1 : rank % kind.parts, 0);
        if (!made) return made.error().message;
        if (rank == 0) {
            world.destroy();
            left = true;
            return "";
        }
        Communicator& part = **made;
        const std::string problem = [&]() -> std::string {
            if (!wait_for(part, [&] { return left.load(); })) return "rank 0 does not leave";
            for (const Rank other : {Rank{0}, part.size() - 1, Rank{2}, Rank{0}})
                if (auto found = disagree(part, other); !found.empty()) return found;
            // An abort ends what others are still in.
            agreed += 1;
            if (!wait_for(part, [&] { return everyone(agreed); })) return "others do not agree";
            if (part.rank() == part.size() - 1) {
                part.abort();
                return "";
            }
            const auto done = part.calls().run(barrier(), nullptr, nullptr);
            if (done) return "a barrier succeeded without everyone";
            return done.error().code == Code::aborted ? "" : done.error().message;
        }();
        // Ranks that leave pass nothing on either.
        finished += 1;
        const bool all = wait_for(part, [&] { return everyone(finished); });
        part.destroy();
        return problem.empty() && !all ? "others did not finish" : problem;
    }));
}

TEST_CASE("communicator: a rank whose parent has left hears who aborts and who leaves") {
    const bool aborts = GENERATE(false, true);
    const auto progress = GENERATE(ProgressMode::thread, ProgressMode::manual);
    INFO((aborts ? "abort" : "leave") << ", manual " << (progress == ProgressMode::manual));
    Job job{10, "inproc"};  // rank 9 is below rank 1
    job.change = [&](Config& config) {
        config.progress = progress;
        config.timeout_ms = 60'000;
    };
    std::atomic<bool> left{false}, told{false};
    std::atomic<int> met{0};
    const auto wait_until = [](Communicator& comm, const std::atomic<bool>& sign) {
        return wait_for(comm, [&] { return sign.load(); });
    };
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        if (auto done = comm.calls().run(barrier(), nullptr, nullptr); !done)
            return done.error().message;
        if (rank == 1) {
            comm.destroy();
            left = true;
            return "";
        }
        met += 1;
        if (!wait_until(comm, left)) return "rank 1 does not leave";
        // An abort ends what others are still in.
        if (rank == 0 && !wait_for(comm, [&] { return met == job.ranks - 1; }))
            return "others are not past the barrier";
        if (rank == 0 && aborts) comm.abort();
        if (rank == 0 && !aborts) comm.destroy();
        if (rank == 9) {
            std::array<std::byte, 4> data{};
            Transfer receive;
            receive.peer = 0;
            receive.memory = data.data();
            receive.bytes = data.size();
            const auto done = comm.messages().run(receive);
            told = true;
            if (done) return "a message that nobody sent has come";
            return done.error().code == (aborts ? Code::aborted : Code::peer_lost)
                       ? ""
                       : done.error().message;
        }
        if (rank == 0 && !aborts) return "";
        return wait_until(comm, told) ? "" : "rank 9 is told nothing";
    }));
}
