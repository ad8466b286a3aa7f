// New processes join the ranks that train. Here all of them are threads; process_test.py kills
// processes.
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "trainer/recovery/expectations.h"
#include "trainer/recovery/shared_batch.h"

namespace {

using ranks::require;
using recovery_test::require_error;
using shared_batch::in_any_case;
using shared_batch::Learner;
using shared_batch::Way;
using Values = std::vector<double>;

constexpr int64_t first_steps = 4, steps_in_all = 8;

void steps(Learner& learner, int64_t count) {
    const int64_t end = learner.trainer.counters().steps + count;
    while (learner.trainer.counters().steps < end) in_any_case([&] { learner.step(); });
}

/// The values of all ranks at the end, which are the same bit for bit.
class Found {
public:
    void add(const Values& values) {
        const std::lock_guard lock(mutex_);
        found_.push_back(values);
    }
    Values same_of(std::size_t count) const {
        REQUIRE(found_.size() == count);
        for (const Values& values : found_) REQUIRE(values == found_.front());
        return found_.front();
    }

private:
    std::mutex mutex_;
    std::vector<Values> found_;
};

using Body = std::function<void(tutti::Communicator&)>;

/// Members, and newcomers that join them. Returns the errors of all, the newcomers' last.
std::vector<std::string> run_with_newcomers(int members, const Body& member, int newcomers,
                                            const Body& newcomer, int timeout_ms = 60'000) {
    const ranks::Folder folder;
    std::vector<std::string> problems(static_cast<std::size_t>(newcomers));
    std::vector<std::thread> threads;
    for (std::string& problem : problems)
        threads.emplace_back([&] {
            try {
                tutti::Config config;
                config.set("join", "1").set("transport", "inproc");
                config.set("store", "file://" + folder.path());
                config.set("timeout_ms", std::to_string(timeout_ms));
                tutti::Communicator comm(config);
                newcomer(comm);
            } catch (const std::exception& error) {
                problem = error.what();
            }
        });
    std::vector<std::string> all = ranks::run(members, member, folder, timeout_ms);
    for (std::thread& thread : threads) thread.join();
    all.insert(all.end(), problems.begin(), problems.end());
    return all;
}

void require_none(const std::vector<std::string>& problems) {
    for (std::size_t i = 0; i < problems.size(); ++i) {
        INFO("rank " << i << ": " << problems[i]);
        REQUIRE(problems[i].empty());
    }
}

/// Some steps with fewer ranks, a checkpoint, and the others with more.
Values with_a_checkpoint(int members, int newcomers, Way way) {
    way.recover = false;
    const ranks::Folder folder;
    const std::string state = folder.file("state");
    ranks::on_ranks(members, [&](tutti::Communicator& comm) {
        Learner learner(comm.get(), way);
        learner.trainer.init_sync();
        steps(learner, first_steps);
        learner.trainer.save(state);
    });
    Values found;
    ranks::on_ranks(members + newcomers, [&](tutti::Communicator& comm) {
        Learner learner(comm.get(), way);
        learner.trainer.load(state);
        steps(learner, steps_in_all - first_steps);
        if (comm.rank() == 0) found = learner.values();
    });
    return found;
}

}  // namespace

TEST_CASE("admission: newcomers go on from the others' state, bit for bit") {
    for (const Way& way : {Way{}, Way{.devices = 2}, Way{.dag = true}, Way{.external = true}})
        for (const auto& [members, newcomers] : {std::pair{2, 1}, {3, 2}}) {
            INFO(members << " + " << newcomers << ", devices " << way.devices << ", dag " << way.dag
                         << ", external " << way.external);
            Found found;
            require_none(run_with_newcomers(
                members,
                [&](tutti::Communicator& comm) {
                    Learner learner(comm.get(), way);
                    learner.trainer.init_sync();
                    steps(learner, first_steps);
                    const int rank = learner.rank();
                    learner.trainer.admit(newcomers);
                    require(learner.rank() == rank, "the rank has another number");
                    require(learner.ranks() == members + newcomers, "a wrong number of ranks");
                    steps(learner, steps_in_all - first_steps);
                    require(learner.trainer.counters().steps == steps_in_all, "a wrong count");
                    found.add(learner.values());
                },
                newcomers,
                [&](tutti::Communicator& comm) {
                    Learner learner(comm.get(), way);
                    learner.trainer.init_sync();
                    require(learner.rank() >= members, "a newcomer has a member's number");
                    steps(learner, steps_in_all - first_steps);
                    found.add(learner.values());
                }));
            CHECK(found.same_of(static_cast<std::size_t>(members + newcomers)) ==
                  with_a_checkpoint(members, newcomers, way));
        }
}

TEST_CASE("admission: without newcomers the training goes on as before") {
    Found found;
    constexpr int timeout_ms = 1500;
    const auto member = [&](tutti::Communicator& comm) {
        Learner learner(comm.get(), {});
        learner.trainer.init_sync();
        steps(learner, first_steps);
        require_error([&] { learner.trainer.admit(1); }, "0 of 1 newcomer came");
        require(learner.trainer.recoveries() == 0, "the ranks have regrouped");
        steps(learner, steps_in_all - first_steps);
        found.add(learner.values());
    };
    require_none(run_with_newcomers(2, member, 0, {}, timeout_ms));
    CHECK(found.same_of(2) == with_a_checkpoint(2, 0, {}));
}

TEST_CASE("admission: a newcomer with another model does not disturb the members") {
    Found found;
    const auto problems = run_with_newcomers(
        2,
        [&](tutti::Communicator& comm) {
            Learner learner(comm.get(), {});
            learner.trainer.init_sync();
            steps(learner, first_steps);
            require_error([&] { learner.trainer.admit(1); }, "rank 2 declares another model");
            require(learner.ranks() == 2, "the newcomer is there");
            steps(learner, steps_in_all - first_steps);
            found.add(learner.values());
        },
        1, [&](tutti::Communicator& comm) { Learner learner(comm.get(), {.width = 5}); });
    CHECK(problems[0].empty());
    CHECK(problems[1].empty());
    CHECK(problems[2].find("declare different models") != std::string::npos);
    CHECK(found.same_of(2) == with_a_checkpoint(2, 0, {}));
}

TEST_CASE("admission: a newcomer that leaves before its first synchronisation is lost") {
    Found found;
    const auto member = [&](tutti::Communicator& comm) {
        Learner learner(comm.get(), {});
        learner.trainer.init_sync();
        steps(learner, first_steps);
        in_any_case([&] {
            if (learner.ranks() == 2 && learner.trainer.recoveries() == 0) learner.trainer.admit(1);
        });
        steps(learner, steps_in_all - first_steps);
        require(learner.ranks() == 2, "the newcomer is still there");
        found.add(learner.values());
    };
    require_none(run_with_newcomers(
        2, member, 1, [](tutti::Communicator& comm) { const Learner learner(comm.get(), {}); }));
    CHECK(found.same_of(2) == with_a_checkpoint(2, 0, {}));
}

TEST_CASE("admission: a newcomer that is lost later is recovered from") {
    Found found;
    const auto train = [&](Learner& learner) {
        steps(learner, steps_in_all - first_steps);
        require(learner.ranks() == 2, "the newcomer is still there");
        found.add(learner.values());
    };
    const auto problems = run_with_newcomers(
        2,
        [&](tutti::Communicator& comm) {
            Learner learner(comm.get(), {});
            learner.trainer.init_sync();
            steps(learner, first_steps);
            learner.trainer.admit(1);
            train(learner);
        },
        1,
        [&](tutti::Communicator& comm) {
            Learner learner(comm.get(), {}, [](const char* moment, int64_t step) {
                if (std::string(moment) == "backward" && step == first_steps + 1)
                    throw std::runtime_error("the end of this rank");
            });
            learner.trainer.init_sync();
            steps(learner, steps_in_all);
        });
    CHECK(problems[0].empty());
    CHECK(problems[1].empty());
    CHECK(problems[2].find("the end of this rank") != std::string::npos);
    found.same_of(2);
}

TEST_CASE("admission: a member that is lost before it is recovered from, and the call repeated") {
    Found found;
    require_none(run_with_newcomers(
        3,
        [&](tutti::Communicator& comm) {
            Learner learner(comm.get(), {});
            learner.trainer.init_sync();
            steps(learner, first_steps);
            if (comm.rank() == 1) return;
            in_any_case([&] { learner.trainer.admit(1); });
            require(learner.ranks() == 3, "a wrong number of ranks");
            steps(learner, steps_in_all - first_steps);
            found.add(learner.values());
        },
        1,
        [&](tutti::Communicator& comm) {
            Learner learner(comm.get(), {});
            learner.trainer.init_sync();
            steps(learner, steps_in_all - first_steps);
            found.add(learner.values());
        }));
    found.same_of(3);
}

TEST_CASE("admission: refused without recovery, in a step, and for a trainer of one replica") {
    ranks::on_ranks(2, [](tutti::Communicator& comm) {
        Learner learner(comm.get(), {.recover = false});
        learner.trainer.init_sync();
        require_error([&] { learner.trainer.admit(1); }, "recovery.recover is not set");
    });
    ranks::on_ranks(1, [](tutti::Communicator& comm) {
        Learner learner(comm.get(), {});
        learner.trainer.init_sync();
        require_error([&] { learner.trainer.admit(1); }, "built for one replica");
    });
    ranks::on_ranks(2, [](tutti::Communicator& comm) {
        Learner learner(comm.get(), {.external = true});
        learner.trainer.init_sync();
        learner.trainer.begin();
        require_error([&] { learner.trainer.admit(1); }, "a step has begun");
        learner.trainer.finish();
    });
}
