// Communicators of processes that know each other's handles. Ranks are threads, each with a handle
// of its own.
#include "handles/reconfigure.h"

#include <filesystem>

#include "comm/growth/growth.h"
#include "comm/job.h"
#include "handles/own_handles.h"

using namespace comm_test;

namespace {

using Ranks = std::vector<Rank>;

// The processes of a test, by number.
class Processes {
public:
    explicit Processes(const std::string& job, Rank count, const std::string& transport = "shm",
                       ProgressMode progress = ProgressMode::thread) {
        for (Rank number = 0; number < count; ++number) {
            Config config;
            config.job = job;
            config.rank = number;
            config.transports = {transport};
            config.timeout_ms = 60'000;
            config.progress = progress;
            configs_.push_back(config);
            handles_.push_back(own_handles::get(config)->handle.encode());
        }
    }

    const Bytes& handle(Rank number) const { return handles_[static_cast<std::size_t>(number)]; }
    const Config& config(Rank number) const { return configs_[static_cast<std::size_t>(number)]; }

    Result<std::shared_ptr<Communicator>> meet(Rank number, const std::string& uuid,
                                               const Ranks& list, int64_t timeout_ms = -1) const {
        std::vector<ByteView> views;
        for (const Rank member : list) views.emplace_back(handle(member));
        return reconfigure(config(number), {uuid, views, timeout_ms});
    }

    using Made = std::vector<Result<std::shared_ptr<Communicator>>>;
    /// Each caller with its own list, at once.
    Made meet_all(const std::string& uuid, const std::vector<std::pair<Rank, Ranks>>& calls,
                  int64_t timeout_ms = -1) const {
        Made made(calls.size());
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < calls.size(); ++i)
            threads.emplace_back(
                [&, i] { made[i] = meet(calls[i].first, uuid, calls[i].second, timeout_ms); });
        for (std::thread& thread : threads) thread.join();
        return made;
    }

private:
    std::vector<Config> configs_;
    std::vector<Bytes> handles_;
};

std::vector<std::pair<Rank, Ranks>> same(const Ranks& list) {
    std::vector<std::pair<Rank, Ranks>> calls;
    for (const Rank member : list) calls.emplace_back(member, list);
    return calls;
}

// The sum over the ranks, of 1 for each.
float count_in(Communicator& comm) {
    float one = 1, sum = 0;
    const auto done = comm.calls().run(sum_of(1), &one, &sum);
    return done ? sum : -1;
}

void expect_works(const Processes::Made& made) {
    std::vector<std::thread> threads;
    std::vector<float> sums(made.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
        INFO((made[i] ? "" : made[i].error().message));
        REQUIRE(made[i]);
        REQUIRE((*made[i])->rank() == static_cast<Rank>(i));
        REQUIRE((*made[i])->size() == static_cast<Rank>(made.size()));
        threads.emplace_back([&, i] { sums[i] = count_in(**made[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const float sum : sums) REQUIRE(sum == static_cast<float>(made.size()));
}

void leave(Processes::Made& made) {
    std::vector<std::thread> threads;
    for (auto& comm : made)
        if (comm) threads.emplace_back([&] { comm->reset(); });
    for (std::thread& thread : threads) thread.join();
}

std::size_t entries_of(const char* folder) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        static_cast<void>(entry);
        ++count;
    }
    return count;
}

}  // namespace

TEST_CASE("reconfigure: ranks are the handles' places, over each transport") {
    for (const std::string transport : {"shm", "tcp"}) {
        const Processes processes("places " + transport, 4, transport);
        int number = 0;
        for (const Ranks& list : {Ranks{0, 1, 2, 3}, {3, 1, 0, 2}, {2, 1}, {1}, {1, 2, 3}}) {
            auto made =
                processes.meet_all("places " + transport + std::to_string(number++), same(list));
            expect_works(made);
            leave(made);
        }
    }
}

TEST_CASE("reconfigure: works with manual progress") {
    const Processes processes("manual", 3, "tcp", ProgressMode::manual);
    for (const Ranks& list : {Ranks{0, 1, 2}, {2, 1, 0}}) {
        auto made = processes.meet_all("manual " + std::to_string(list[0]), same(list));
        expect_works(made);
        leave(made);
    }
}

TEST_CASE("reconfigure: works beside older communicators, aborted ones too") {
    const Processes processes("beside", 3);
    auto first = processes.meet_all("1", same({0, 1, 2}));
    auto second = processes.meet_all("2", same({2, 1, 0}));
    expect_works(first);
    (*first[0])->abort();
    expect_works(second);
    auto third = processes.meet_all("3", same({1, 0}));
    expect_works(third);
    for (auto* made : {&first, &second, &third}) leave(*made);
}

TEST_CASE("reconfigure: names what is wrong with the arguments") {
    const Processes processes("arguments", 3);
    const auto refused = [&](const Result<std::shared_ptr<Communicator>>& made, Code code,
                             const char* message) {
        REQUIRE(!made);
        INFO(made.error().message);
        REQUIRE(made.error().code == code);
        REQUIRE(contains(made.error().message, message));
    };
    refused(processes.meet(0, "", {0, 1}), Code::invalid, "the uuid has 0 bytes");
    refused(processes.meet(0, std::string(257, 'u'), {0}), Code::invalid, "257 bytes");
    refused(processes.meet(0, "empty", {}), Code::invalid, "list of handles is empty");
    refused(processes.meet(0, "absent", {1, 2}), Code::invalid, "none of the 2 handles is this");
    refused(processes.meet(0, "twice", {0, 1, 1}), Code::invalid, "handles 1 and 2 of 3 are the");
    Config other = processes.config(0);
    other.job = "another job";
    const std::vector<ByteView> handles{processes.handle(0)};
    refused(reconfigure(other, {"other", handles}), Code::invalid, "it is of job 'arguments'");
    other = processes.config(0);
    other.secret = "a secret that they do not have";
    refused(reconfigure(other, {"other", handles}), Code::auth, "handle 0 of 1: its process has");
    // A refused call has not used its uuid.
    REQUIRE(processes.meet(0, "absent", {0}));
    refused(processes.meet(0, "absent", {0}), Code::invalid, "uuid 'absent' was used before");
}

TEST_CASE("reconfigure: newcomers have no store, so its communicators do not grow") {
    const Processes processes("no growth", 2);
    for (const Ranks& list : {Ranks{0}, Ranks{0, 1}}) {
        const auto made = processes.meet_all(list.size() == 1 ? "one" : "two", same(list));
        for (const auto& comm : made) {
            REQUIRE(comm);
            const auto waiting = count_waiting(**comm);
            const auto larger = grow(**comm, 1);
            REQUIRE_FALSE(waiting);
            REQUIRE_FALSE(larger);
            for (const Error& error : {waiting.error(), larger.error()}) {
                CHECK(error.code == Code::invalid);
                CHECK(error.message.find("have met by handles") != std::string::npos);
            }
        }
        for (const auto& comm : made) (*comm)->destroy();
    }
}

TEST_CASE("reconfigure: different lists are told at once") {
    const Processes processes("different lists", 3);
    const std::vector<std::vector<std::pair<Rank, Ranks>>> cases = {
        {{0, {0, 1}}, {1, {1, 0}}},                        // each is the first in its own list
        {{0, {0, 1, 2}}, {1, {0, 1}}, {2, {0, 1, 2}}},     // one lacks a rank
        {{0, {1, 0, 2}}, {1, {2, 1, 0}}, {2, {0, 2, 1}}},  // none is the first in its own list
        {{0, {0, 1, 2}}, {1, {0, 1, 2}}, {2, {2, 1, 0}}},  // another order
    };
    int number = 0;
    for (const auto& calls : cases) {
        INFO("case " << number);
        const int64_t start_ns = now_ns();
        const auto made =
            processes.meet_all("different " + std::to_string(number++), calls, 30'000);
        REQUIRE(now_ns() - start_ns < 20'000'000'000);
        for (const auto& comm : made) {
            REQUIRE(!comm);
            INFO(comm.error().message);
            REQUIRE(comm.error().code == Code::mismatch);
            REQUIRE(contains(comm.error().message, "have different lists for uuid 'different "));
        }
    }
}

TEST_CASE("reconfigure: a time-out names the ranks that did not come") {
    const Processes processes("late", 4);
    const Ranks list{0, 1, 2, 3};
    const auto made = processes.meet_all("late", {{0, list}, {2, list}}, 1500);
    for (const auto& comm : made) {
        REQUIRE(!comm);
        INFO(error_text(comm.error()));
        REQUIRE(comm.error().code == Code::timeout);
        REQUIRE(contains(comm.error().message, "ranks 1, 3"));
        REQUIRE(contains(error_text(comm.error()), "with uuid 'late' and the same handles"));
    }
    const auto first = processes.meet_all("no first", {{1, list}}, 1000);
    REQUIRE(first[0].error().code == Code::timeout);
    REQUIRE(first[0].error().rank == 0);
    // The processes can meet all the same, with another uuid.
    auto again = processes.meet_all("again", same(list));
    expect_works(again);
    leave(again);
}

TEST_CASE("reconfigure: many in a row leave no descriptor and no thread behind") {
    const Processes processes("row", 3);
    const auto once = [&](int number) {
        Ranks list{0, 1, 2};
        std::rotate(list.begin(), list.begin() + number % 3, list.end());
        auto made = processes.meet_all("row " + std::to_string(number), same(list));
        expect_works(made);
        leave(made);
    };
    for (int number = 0; number < 3; ++number) once(number);
    const auto counts = [] {
        return std::pair(entries_of("/proc/self/fd"), entries_of("/proc/self/task"));
    };
    const auto before = counts();
    for (int number = 3; number < 53; ++number) once(number);
    INFO("descriptors and threads: " << before.first << ", " << before.second << " before, "
                                     << counts().first << ", " << counts().second << " after");
    // The servers close the connections of clients that have gone a moment later, so the first
    // count may have some, too.
    REQUIRE(eventually([&] {
        const auto after = counts();
        return after.first <= before.first && after.second <= before.second;
    }));
}
