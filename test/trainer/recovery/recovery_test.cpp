// The ranks that are left go on after a loss, with the state of the step's begin. A rank is lost
// when an operation of it fails; the processes of process_test.py are killed.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/recovery/expectations.h"
#include "trainer/recovery/shared_batch.h"

namespace {

using ranks::require;
using recovery_test::require_error;
using recovery_test::require_words;
using shared_batch::Learner;
using shared_batch::Way;
using Values = std::vector<double>;

constexpr int64_t all_steps = 8;

struct Lost : std::runtime_error {
    Lost() : std::runtime_error("the end of this rank") {}
};

/// The rank that fails at a moment of a step.
struct Death {
    int rank = 1;
    std::string moment = "forward";
    int64_t step = 4;
};

shared_batch::Moment doom(int rank, const Death& death) {
    return [=](const char* moment, int64_t step) {
        if (rank == death.rank && moment == death.moment && step == death.step) throw Lost();
    };
}

/// Steps until so many are done. A step that returns PEER_LOST is called again.
void train_until(Learner& learner, int64_t steps, const Way& way) {
    while (learner.trainer.counters().steps < steps) try {
            learner.step();
        } catch (const tutti::Error& error) {
            if (way.resizes && !way.external) throw;
            if (error.status() != TUTTI_ERR_PEER_LOST) throw;
            require_words(error.what(), "the trainer goes on with");
        }
}

/// The values of the survivors, who are the same bit for bit.
Values of_survivors(int ranks, const Way& way, const Death& death) {
    std::mutex mutex;
    std::vector<Values> found;
    const auto problems = ranks::run(ranks, [&](tutti::Communicator& comm) {
        const int rank = comm.rank();
        Learner learner(comm.get(), way, doom(rank, death));
        learner.trainer.init_sync();
        if (rank == death.rank) {
            require_error([&] { train_until(learner, all_steps, way); }, "the end of this rank");
            return;
        }
        train_until(learner, all_steps, way);
        require(learner.ranks() == ranks - 1, "not all of the others are there");
        require(learner.trainer.recoveries() == 1, "the trainer has not recovered once");
        const std::lock_guard lock(mutex);
        found.push_back(learner.values());
    });
    for (int rank = 0; rank < ranks; ++rank) {
        INFO("rank " << rank);
        const std::string& problem = problems[static_cast<std::size_t>(rank)];
        REQUIRE(problem == (way.external && rank == death.rank ? "the end of this rank" : ""));
    }
    REQUIRE(found.size() == static_cast<std::size_t>(ranks - 1));
    for (const Values& values : found) REQUIRE(values == found.front());
    return found.front();
}

/// The values of all ranks, who load a checkpoint before and save one afterwards, if it is named.
Values without_losses(int ranks, Way way, int64_t steps, const std::string& load,
                      const std::string& save) {
    way.recover = false;
    Values found;
    ranks::on_ranks(ranks, [&](tutti::Communicator& comm) {
        Learner learner(comm.get(), way);
        load.empty() ? learner.trainer.init_sync() : learner.trainer.load(load);
        train_until(learner, steps, way);
        if (!save.empty()) learner.trainer.save(save);
        if (comm.rank() == 0) found = learner.values();
    });
    return found;
}

/// Some steps with one more rank, the others without it.
Values with_a_rank_less(int ranks, const Way& way, int64_t first_steps) {
    const ranks::Folder folder;
    const std::string state = folder.file("state");
    without_losses(ranks, way, first_steps, "", state);
    return without_losses(ranks - 1, way, all_steps - first_steps, state, "");
}

Values alone(Way way) {
    way.recover = false;
    Learner learner(nullptr, way);
    learner.trainer.init_sync();
    train_until(learner, all_steps, way);
    return learner.values();
}

// After a failure in the update the others may have finished the step.
void check(int ranks, const Way& way, const Death& death) {
    INFO(death.moment << ", devices " << way.devices << (way.dag ? ", dag" : ", serial"));
    const Values found = of_survivors(ranks, way, death);
    const bool as_repeated = found == with_a_rank_less(ranks, way, death.step);
    const bool as_finished = found == with_a_rank_less(ranks, way, death.step + 1);
    REQUIRE((as_repeated || (death.moment == "update" && as_finished)));
    REQUIRE(net::largest_difference(found, alone(way)) < 1e-12);
}

void wait_ms(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

/// A barrier without tutti. A rank that failed before does not come; the others do not wait for
/// ever.
class Meeting {
public:
    void wait_for(int ranks) {
        ++arrived_;
        for (int ms = 0; arrived_ < ranks && ms < 20000; ++ms) wait_ms(1);
    }

private:
    std::atomic<int> arrived_ = 0;
};

/// A device that waits in a copy, or fails in it.
struct SlowDevice {
    bool fails = false;
    std::atomic<int> copies_left = -1;
    std::atomic<bool> waits = true;

    tutti_status copy() {
        if (copies_left <= 0 || --copies_left > 0) return TUTTI_OK;
        if (fails) return TUTTI_ERR_SYSTEM;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (waits && std::chrono::steady_clock::now() < end) wait_ms(1);
        return TUTTI_OK;
    }
};

// The user of the device is a SlowDevice or NULL.
tutti_device_functions reachable_functions() {
    tutti_device_functions f = TUTTI_DEVICE_FUNCTIONS_INIT;
    f.alloc = [](void*, size_t bytes, void** data) {
        *data = std::calloc(1, bytes);
        return *data ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    };
    f.free = [](void*, void* data, size_t) { std::free(data); };
    f.copy = [](void* user, void* to, const void* from, size_t bytes) {
        const tutti_status status = user ? static_cast<SlowDevice*>(user)->copy() : TUTTI_OK;
        if (status == TUTTI_OK) std::memcpy(to, from, bytes);
        return status;
    };
    f.zero = [](void*, void* data, size_t bytes) {
        std::memset(data, 0, bytes);
        return TUTTI_OK;
    };
    f.axpby = [](void*, size_t, tutti_dtype, double, const void*, double, void*) {
        return TUTTI_ERR_UNSUPPORTED;
    };
    f.run = [](void*, void (*work)(void*), void* argument) {
        work(argument);
        return TUTTI_OK;
    };
    return f;
}

/// Two for each rank; one of them is slow.
class Devices {
public:
    Devices(std::size_t count, std::size_t slow_one, SlowDevice& slow) : all_(count) {
        const tutti_device_functions functions = reachable_functions();
        for (std::size_t d = 0; d < count; ++d)
            tutti_device_create(&functions, d == slow_one ? &slow : nullptr, &all_[d]);
    }
    Devices(const Devices&) = delete;
    ~Devices() {
        for (tutti_device* device : all_) tutti_device_destroy(device);
    }
    std::vector<tutti_device*> of_rank(std::size_t rank) const {
        return {all_[2 * rank], all_[2 * rank + 1]};
    }

private:
    std::vector<tutti_device*> all_;
};

const std::vector<std::string> moments = {"read", "forward", "backward", "update"};

}  // namespace

TEST_CASE("trainer recovery: the ranks left repeat a step from its begin, at any moment of it") {
    for (const std::string& moment : moments)
        for (bool dag : {false, true}) check(3, {.dag = dag}, {.moment = moment});
}

TEST_CASE("trainer recovery: the loss scale follows the number of ranks") {
    for (bool resizes : {true, false})
        check(3, {.even = true, .resizes = resizes}, {.moment = "backward"});
    check(4, {.devices = 2, .dag = true, .even = true}, {.rank = 3});
}

TEST_CASE("trainer recovery: with several devices, and until one rank is left") {
    for (const std::string& moment : moments) {
        check(2, {.devices = 2, .dag = true}, {.moment = moment});
        check(2, {}, {.rank = 0, .moment = moment});
    }
}

TEST_CASE("trainer recovery: without resize the step returns PEER_LOST, and the program repeats") {
    for (bool dag : {false, true}) check(3, {.dag = dag, .resizes = false}, {.moment = "backward"});
}

TEST_CASE("trainer recovery: a framework with its own autograd begins the step again") {
    for (const char* moment : {"forward", "backward"})
        check(3, {.external = true}, {.moment = moment});
}

TEST_CASE("trainer recovery: on devices whose memory the host cannot reach") {
    const auto count = static_cast<std::size_t>(GENERATE(2, 3));
    std::vector<std::unique_ptr<card::Cards>> cards;
    for (std::size_t rank = 0; rank < count; ++rank)
        cards.push_back(std::make_unique<card::Cards>(2));
    std::mutex mutex;
    std::vector<Values> found;
    const auto problems = ranks::run(static_cast<int>(count), [&](tutti::Communicator& comm) {
        const int rank = comm.rank();
        const Way way{.devices = 2, .own_devices = cards[static_cast<std::size_t>(rank)]->devices};
        Learner learner(comm.get(), way, doom(rank, {.moment = "backward"}));
        learner.trainer.init_sync();
        train_until(learner, all_steps, way);
        const std::lock_guard lock(mutex);
        found.push_back(learner.values());
    });
    expect::words(problems[1], "the end of this rank");
    REQUIRE((problems.front() + (count == 3 ? problems.back() : "")).empty());
    REQUIRE(found.size() == count - 1);
    REQUIRE(found.front() == found.back());
    REQUIRE(net::largest_difference(found[0], alone({.devices = 2})) < 1e-12);
}

TEST_CASE("trainer recovery: a rank whose step another one has finished gets that one's state") {
    // Rank 1 is slow to give its second device the last gradients, which all ranks have reduced by
    // then. So ranks 0 and 2 finish the step, but rank 1 has not begun the broadcast of computed
    // parameters when rank 2 is lost.
    SlowDevice slow;
    const Devices devices(6, 3, slow);
    std::atomic<int> forwards = 0;
    std::atomic<bool> others_finished = false;
    std::mutex mutex;
    std::vector<Values> found;
    const auto problems = ranks::run(3, [&](tutti::Communicator& comm) {
        const auto rank = static_cast<std::size_t>(comm.rank());
        const Way way{.devices = 2, .own_devices = devices.of_rank(rank)};
        const auto moment = [&](const char* name, int64_t step) {
            if (rank != 1 || step != 4) return;
            if (name == std::string("forward")) ++forwards;
            if (name == std::string("backward")) slow.copies_left = 2;  // of b's and w's gradients
        };
        auto own = std::make_unique<Learner>(comm.get(), way, moment);
        Learner& learner = *own;
        learner.trainer.init_sync();
        if (rank == 2) {
            train_until(learner, 5, way);
            for (int ms = 0; slow.copies_left > 0 && ms < 20000; ++ms) wait_ms(1);
            others_finished = slow.copies_left == 0;
            own.reset();
            wait_ms(200);  // until rank 0 has revoked the communicator
            slow.waits = false;
            return;
        }
        train_until(learner, all_steps, way);
        require(learner.trainer.recoveries() == 1, "the trainer has not recovered once");
        const std::lock_guard lock(mutex);
        found.push_back(learner.values());
    });
    expect::no_problem(problems);
    REQUIRE(others_finished);
    REQUIRE(forwards == 1);  // rank 1 did not repeat the step
    REQUIRE(found.size() == 2);
    REQUIRE(found[0] == found[1]);
    REQUIRE(net::largest_difference(found[0], alone({.devices = 2})) < 1e-12);
}

TEST_CASE("trainer recovery: an update begins after the step's last collective") {
    // Rank 0, which broadcasts the computed parameters, fails after the gradients are reduced and
    // before that broadcast. The others have all that the update of the parameters needs.
    for (bool dag : {false, true}) {
        SlowDevice failing{.fails = true};
        const Devices devices(6, 1, failing);
        std::mutex mutex;
        std::vector<Values> found;
        const auto problems = ranks::run(3, [&](tutti::Communicator& comm) {
            const auto rank = static_cast<std::size_t>(comm.rank());
            const Way way{.devices = 2, .dag = dag, .own_devices = devices.of_rank(rank)};
            Learner learner(comm.get(), way, [&](const char* name, int64_t step) {
                if (rank == 0 && step == 4 && name == std::string("backward"))
                    failing.copies_left = 2;  // of b's and w's gradients
            });
            learner.trainer.init_sync();
            train_until(learner, all_steps, way);
            const std::lock_guard lock(mutex);
            found.push_back(learner.values());
        });
        expect::words(problems[0], "the device could not copy");
        REQUIRE((problems[1] + problems[2]).empty());
        REQUIRE(found.size() == 2);
        REQUIRE(found[0] == found[1]);
        REQUIRE(net::largest_difference(found[0], alone({.devices = 2})) < 1e-12);
    }
}

TEST_CASE("trainer recovery: a rank may be lost while the others recover") {
    std::mutex mutex;
    std::vector<Values> found;
    const auto problems = ranks::run(4, [&](tutti::Communicator& comm) {
        const int rank = comm.rank();
        Learner learner(comm.get(), {}, [&, once = false](const char* moment, int64_t) mutable {
            // The step that is repeated has three ranks.
            if (moment != std::string("read") || learner.trainer.counters().steps < 4) return;
            if (rank == 1 || (rank == 2 && std::exchange(once, true))) throw Lost();
        });
        learner.trainer.init_sync();
        train_until(learner, all_steps, {});
        const std::lock_guard lock(mutex);
        found.push_back(learner.values());
    });
    for (std::size_t rank : {1u, 2u}) expect::words(problems[rank], "the end of this rank");
    REQUIRE((problems[0] + problems[3]).empty());
    REQUIRE(found.size() == 2);
    REQUIRE(found[0] == found[1]);
    REQUIRE(net::largest_difference(found[0], alone({})) < 1e-12);
}

TEST_CASE("trainer recovery: a rank between two steps lets the others repeat what it has to do") {
    Meeting has_finished, has_left;
    const auto problems = ranks::run(3, [&](tutti::Communicator& comm) {
        auto own = std::make_unique<Learner>(comm.get(), Way{});
        Learner& learner = *own;
        learner.trainer.init_sync();
        for (int i = 0; i < 3; ++i) learner.step();
        has_finished.wait_for(3);
        if (comm.rank() == 2) own.reset();
        has_left.wait_for(3);
        if (comm.rank() == 2) return;
        if (comm.rank() == 1) {
            learner.trainer.recover();  // as after a collective of the program's that failed
        } else {
            const std::string error = expect::error_of([&] { learner.step(); });
            require_words(error, "the trainer goes on with 2 of 3 ranks");
            require_words(error, "since the last finished step");
        }
        double sum = 1;
        require(tutti_allreduce(learner.trainer.comm(), &sum, &sum, 1, TUTTI_FLOAT64, TUTTI_SUM) ==
                        TUTTI_OK &&
                    sum == 2,
                "a collective on the communicator of the ranks left");
        learner.step();
        require(learner.trainer.counters().steps == 4, "a step was lost");
    });
    expect::no_problem(problems);
}

TEST_CASE("trainer recovery: a call between two steps returns PEER_LOST and can be made again") {
    const ranks::Folder folder;
    using Call = std::function<void(tutti::Trainer&)>;
    const Call calls[] = {[](auto& t) { t.sync(); }, [](auto& t) { t.epoch_barrier(); },
                          [&](auto& t) { t.save(folder.file("state")); }};
    for (const Call& call : calls) {
        Meeting has_finished;
        const auto problems = ranks::run(3, [&](tutti::Communicator& comm) {
            Learner learner(comm.get(), {});
            learner.trainer.init_sync();
            learner.step();
            has_finished.wait_for(3);
            if (comm.rank() == 1) return;
            const Values before = learner.values();
            const std::string error = expect::error_of([&] { call(learner.trainer); });
            require_words(error, "the trainer goes on with 2 of 3 ranks");
            require(learner.values() == before, "the values have changed");
            call(learner.trainer);
            learner.step();
        });
        expect::no_problem(problems);
    }
}

TEST_CASE("trainer recovery: a failure of this rank alone ends it, and the others go on") {
    const auto problems = ranks::run(2, [](tutti::Communicator& comm) {
        const int rank = comm.rank();
        Learner learner(comm.get(), {}, doom(rank, {.rank = 0, .step = 1}));
        learner.trainer.init_sync();
        if (rank == 1) return train_until(learner, all_steps, {});
        learner.step();
        require_error([&] { learner.step(); }, "the end of this rank");
        require_error([&] { learner.step(); }, "the trainer ended after an earlier failure");
        require_error([&] { learner.trainer.recover(); }, "the trainer ended");
        require(learner.trainer.comm() == nullptr, "an ended trainer has a communicator");
    });
    expect::no_problem(problems);
}

TEST_CASE("trainer recovery: a rank that is alive but does not take part ends the trainers") {
    const auto problems = ranks::run(
        3,
        [](tutti::Communicator& comm) {
            Learner learner(comm.get(), {});
            learner.trainer.init_sync();
            if (comm.rank() == 2) return wait_ms(6000);
            try {
                learner.step();
            } catch (const tutti::Error& error) {
                require(error.status() == TUTTI_ERR_TIMEOUT, error.what());
                require_words(error.what(), "rank 2 did not call it");
            }
            require_error([&] { learner.step(); }, "the trainer ended after an earlier failure");
        },
        {}, 1500);
    expect::no_problem(problems);
}

TEST_CASE("trainer recovery: a step whose update has collectives copies all that it writes") {
    for (bool dag : {false, true}) {
        check(3, {.dag = dag, .exchanges = true}, {.moment = "update"});
        check(3, {.dag = dag, .exchanges = true}, {.moment = "backward"});
    }
    Learner learner(nullptr, {.exchanges = true, .width = 1000});
    REQUIRE(learner.trainer.recovery_bytes() >= 3000 * sizeof(double));  // w, v.w, all.v
}

TEST_CASE("trainer recovery: a step copies what operations write before its update") {
    const auto bytes = [](Way way) {
        Learner learner(nullptr, std::move(way));
        return learner.trainer.recovery_bytes();
    };
    REQUIRE(bytes({.recover = false}) == 0);
    const std::size_t only_mean = bytes({.width = 1000});
    REQUIRE(only_mean >= sizeof(double));
    REQUIRE(only_mean < 1000 * sizeof(double));
    REQUIRE(bytes({.devices = 2, .width = 1000}) == only_mean);
    REQUIRE(bytes({.external = true, .width = 1000}) == only_mean);
}

TEST_CASE("trainer recovery: what depends on the first ranks is refused") {
    const auto refusal = [](const std::function<void(tutti::TrainerSpec&)>& change) {
        tutti::TrainerSpec spec = net::spec<double>({}, 1);
        spec.recover = true;
        change(spec);
        return expect::error_of([&] { tutti::Trainer trainer(std::move(spec)); });
    };
    const auto declares = [](tutti::TrainerSpec& spec,
                             const std::function<void(tutti::Model&)>& more) {
        spec.forward = [=, forward = spec.forward](tutti::Model& m, double scale) {
            more(m);
            return forward(m, scale);
        };
    };
    REQUIRE(refusal([](auto&) {}) == "no error");
    expect::words(refusal([](auto& s) { s.options.local_steps = 2; }), "options.local_steps");
    expect::words(refusal([](auto& s) { s.options.scale = TUTTI_SCALE_LEARNING_RATE; }),
                  "the first number of replicas");
    expect::words(refusal([](auto& s) { s.update = {}; }), "no update builder");
    expect::words(refusal([&](auto& s) {
                      declares(s, [](tutti::Model& m) {
                          m.parameter<float>("shard", {2}, TUTTI_DISTRIBUTED);
                      });
                  }),
                  "buffer 'device_0/shard' is distributed");
    expect::words(
        refusal([&](auto& s) {
            declares(s, [](tutti::Model& m) { m.sparse_parameter<float>("table", {4, 2}, 1); });
        }),
        "sparse parameter 'device_0/table'");
    const auto collective = [&](tutti_collective_kind kind, tutti_op op) {
        return refusal([&](auto& s) {
            declares(s, [=](tutti::Model& m) {
                auto more = tutti_collective_spec TUTTI_COLLECTIVE_SPEC_INIT;
                more.op = op;
                m.collective("exchange", kind, m.activation<double>("a", {1}),
                             m.activation<double>("b", {1}), more);
            });
        });
    };
    expect::words(collective(TUTTI_COLLECTIVE_BROADCAST, TUTTI_SUM), "device_0/exchange");
    expect::words(collective(TUTTI_COLLECTIVE_ALLREDUCE, TUTTI_AVG), "device_0/exchange");
}

TEST_CASE("trainer recovery: all ranks set it, or none") {
    const auto problems = ranks::run(2, [](tutti::Communicator& comm) {
        const std::string error =
            expect::error_of([&] { Learner learner(comm.get(), {.recover = comm.rank() == 0}); });
        require(error == "no error" || error.find("MISMATCH") != std::string::npos ||
                    error.find("set recovery") != std::string::npos,
                error);
        tutti_trainer* no_trainer = nullptr;
        require(tutti_trainer_recover(no_trainer) == TUTTI_ERR_INVALID, "recover of NULL");
        require(tutti_trainer_comm(no_trainer) == nullptr, "comm of NULL");
        require(tutti_trainer_recoveries(no_trainer) == -1, "recoveries of NULL");
        Learner learner(comm.get(), {.recover = false});
        require_error([&] { learner.trainer.recover(); }, "recovery.recover is not set");
        tutti_trainer_recovery recovery = TUTTI_TRAINER_RECOVERY_INIT;
        recovery.recover = comm.rank();
        require(tutti_trainer_set_recovery(learner.trainer.get(), &recovery) == TUTTI_ERR_INVALID,
                "different values of recover");
        recovery.struct_size = 1;
        require(tutti_trainer_set_recovery(learner.trainer.get(), &recovery) == TUTTI_ERR_INVALID,
                "a wrong struct_size");
    });
    expect::no_problem(problems);
}

TEST_CASE("recovery: after a mismatch in a synchronisation all ranks go on") {
    ranks::on_ranks(2, [](tutti::Communicator& comm) {
        Learner learner(comm.get(), {});
        learner.trainer.init_sync();
        train_until(learner, 2, {});
        if (comm.rank() == 0)
            require_error([&] { learner.trainer.sync(); }, "epoch barrier");
        else
            require_error([&] { learner.trainer.epoch_barrier(); }, "trainer sync");
        learner.trainer.sync();
        train_until(learner, 4, {});
        require(learner.trainer.recoveries() == 0, "the ranks have regrouped");
    });
}
