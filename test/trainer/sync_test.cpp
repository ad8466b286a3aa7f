// Rows 7, 9, 10, 11 and 12: what is synchronised, when, and what is not.
#include <atomic>
#include <chrono>
#include <thread>

#include "support/catch.h"
#include "support/sanitized.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"
#include "tutti/checkpoint.hpp"  // beside trainer.hpp

namespace {

using ranks::require;

std::ptrdiff_t entries(const std::string& folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
}

net::Shape with_statistics() {
    net::Shape shape;
    shape.statistics = true;
    return shape;
}

template <typename T>
std::vector<T> of_rank_0(tutti_comm* comm, std::vector<T> values) {
    require(tutti_broadcast(comm, values.data(), values.size(), tutti::dtype_of<T>, 0) == TUTTI_OK,
            "broadcast");
    return values;
}

std::vector<float> change(const std::vector<float>& before, const std::vector<float>& after) {
    std::vector<float> way;
    for (std::size_t i = 0; i < before.size(); ++i) way.push_back(after[i] - before[i]);
    return way;
}

struct Run {
    std::vector<float> before, after;
    tutti_trainer_counters counters;
};

Run run(const net::Shape& shape, int devices, tutti_comm* comm, tutti_trainer_options options,
        int steps, const std::vector<int64_t>& samples = {}) {
    tutti::Trainer trainer(net::spec<float>(shape, devices, comm, options));
    net::initialise<float>(trainer, shape);
    trainer.init_sync();
    Run done;
    done.before = net::parameters<float>(trainer, shape);
    for (int i = 0; i < steps; ++i)
        if (samples.empty())
            trainer.step();
        else
            trainer.step(samples);
    done.after = net::parameters<float>(trainer, shape);
    done.counters = trainer.counters();
    return done;
}

}  // namespace

TEST_CASE("sync: 100 load-and-broadcast cycles create nothing and bring every value") {
    const net::Shape shape = with_statistics();
    const ranks::Folder store;
    expect::no_problem(ranks::run(
        2,
        [&](tutti_comm* comm, int rank) {
            tutti::Trainer trainer(net::spec<float>(shape, 2, comm));
            trainer.init_sync();
            // One rank looks, and the other stands still: looking takes a descriptor.
            const auto look = [&] {
                std::size_t fds = 0, keys = 0;
                require(tutti_barrier(comm) == TUTTI_OK, "barrier");
                if (rank == 0) {
                    fds = entries("/proc/self/fd");
                    keys = entries(store.path());
                }
                require(tutti_barrier(comm) == TUTTI_OK, "barrier");
                return std::pair(fds, keys);
            };
            const auto [fds, keys] = look();
            for (int cycle = 0; cycle < 100; ++cycle) {
                const auto value = static_cast<float>(cycle + 1);
                if (rank == 0) {
                    trainer.write<float>(0, "layer1/b", std::vector<float>(5, value));
                    trainer.write<float>(0, "running_mean", std::vector<float>(3, value + 1));
                    trainer.write<float>(0, "layer2.w.momentum", std::vector<float>(5, value + 2));
                    trainer.write<double>(0, "learning_rate", {value / 1000});
                    trainer.write<int64_t>(0, "iteration", {cycle});
                }
                trainer.sync();
                for (int d = 0; d < 2; ++d) {
                    require(trainer.read<float>(d, "layer1/b") == std::vector<float>(5, value),
                            "parameter");
                    require(
                        trainer.read<float>(d, "running_mean") == std::vector<float>(3, value + 1),
                        "computed");
                    require(trainer.read<float>(d, "layer2.w.momentum") ==
                                std::vector<float>(5, value + 2),
                            "state");
                    require(trainer.read<double>(d, "learning_rate")[0] == value / 1000, "rate");
                    require(trainer.read<int64_t>(d, "iteration")[0] == cycle, "iteration");
                }
            }
            const auto [fds_after, keys_after] = look();
            require(fds_after == fds, "descriptors were opened");
            require(keys_after == keys, "store keys were made");
            trainer.step();
            require(trainer.read<int64_t>(1, "iteration")[0] == 100, "the count does not go on");
        },
        store));
}

TEST_CASE("sync: 100 checkpoints loaded one after the other create nothing either") {
    const net::Shape shape = with_statistics();
    const ranks::Folder store, folder;
    const auto path = [&](int which) {
        return folder.path() + (which ? "/odd.safetensors" : "/even.safetensors");
    };
    expect::no_problem(ranks::run(
        2,
        [&](tutti_comm* comm, int rank) {
            tutti::Trainer trainer(net::spec<float>(shape, 2, comm));
            net::initialise<float>(trainer, shape);
            trainer.init_sync();
            std::vector<float> saved[2];
            for (int which : {0, 1}) {
                trainer.step();
                trainer.save(path(which));
                saved[which] = net::parameters<float>(trainer, shape);
            }
            require(saved[0] != saved[1], "one step changed nothing");
            const auto look = [&] {
                std::size_t fds = 0, keys = 0;
                require(tutti_barrier(comm) == TUTTI_OK, "barrier");
                if (rank == 0) {
                    fds = entries("/proc/self/fd");
                    keys = entries(store.path());
                }
                require(tutti_barrier(comm) == TUTTI_OK, "barrier");
                return std::pair(fds, keys);
            };
            const auto before = look();
            for (int cycle = 0; cycle < (test::sanitized ? 10 : 100); ++cycle) {
                trainer.load(path(cycle % 2));
                for (int d = 0; d < 2; ++d) {
                    require(net::parameters<float>(trainer, shape, d) == saved[cycle % 2],
                            "a parameter");
                    require(trainer.read<int64_t>(d, "iteration")[0] == cycle % 2 + 1,
                            "the iteration");
                }
            }
            require(look() == before, "descriptors were opened, or store keys made");
        },
        store));
}

TEST_CASE("sync: a step before init_sync is an error that says so") {
    tutti::Trainer trainer(net::spec<float>(net::Shape{}, 1));
    expect::error([&] { trainer.step(); }, "call tutti_trainer_init_sync before");
}

TEST_CASE("computed: by default replica 0's go to all after every step, bit for bit") {
    const net::Shape shape = with_statistics();
    tutti::Trainer alone(net::spec<float>(shape, 1));
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
        tutti::Trainer trainer(net::spec<float>(shape, 2, comm));
        trainer.init_sync();
        std::vector<float> last;
        for (int i = 0; i < 4; ++i) {
            trainer.step();
            const auto mean = trainer.read<float>(0, "running_mean");
            require(mean != last, "the statistics do not move");
            require(mean == trainer.read<float>(1, "running_mean"), "devices differ");
            require(mean == of_rank_0(comm, mean), "ranks differ");
            require(trainer.read<int64_t>(1, "batches")[0] == i + 1, "the counter is wrong");
            last = mean;
        }
    }));
}

TEST_CASE("computed: every k steps only then") {
    const net::Shape shape = with_statistics();
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.computed_every = 3;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti::Trainer trainer(net::spec<float>(shape, 1, comm, options));
        trainer.init_sync();
        for (int i = 1; i <= 6; ++i) {
            trainer.step();
            const auto mean = trainer.read<float>(0, "running_mean");
            const bool same = mean == of_rank_0(comm, mean);
            require(rank == 0 || same == (i % 3 == 0), "step " + std::to_string(i));
        }
    }));
}

TEST_CASE("computed: as a mean, floats are averaged and integers broadcast") {
    net::Shape shape = with_statistics();
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.computed_sync = TUTTI_COMPUTED_MEAN;
        options.computed_every = 1;
        tutti::Trainer averaged(net::spec<float>(shape, 1, comm, options));
        options.computed_every = 100;  // never: each keeps its own
        tutti::Trainer own(net::spec<float>(shape, 1, comm, options));
        averaged.init_sync();
        own.init_sync();
        if (rank == 1) averaged.write<int64_t>(0, "batches", {77});
        averaged.step();
        own.step();
        std::vector<float> expected = own.read<float>(0, "running_mean");
        require(tutti_allreduce(comm, expected.data(), expected.data(), expected.size(),
                                TUTTI_FLOAT32, TUTTI_AVG) == TUTTI_OK,
                "allreduce");
        const auto mean = averaged.read<float>(0, "running_mean");
        require(net::largest_difference(mean, expected) < 1e-7, "not the mean");
        require(mean == of_rank_0(comm, mean), "ranks differ");
        require(averaged.read<int64_t>(0, "batches")[0] == 1, "integers are not rank 0's");
    }));
}

namespace {

void train_shards(tutti_comm* comm, int rank, int micro_batches, bool fixed_order) {
    const int devices = 2;
    const net::Shape shape;
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.micro_batches = micro_batches;
    options.fixed_order = fixed_order;
    tutti::TrainerSpec spec = net::spec<float>(shape, devices, comm, options);
    const auto forward = spec.forward;
    spec.forward = [=](tutti::Model& m, double scale) {
        const int64_t rows = 2 + m.replica();
        const tutti_buffer p = m.parameter<float>("shard", {rows}, TUTTI_DISTRIBUTED);
        const tutti_buffer l = m.activation<float>("shard_loss", {1});
        m.operation(
            "use", {p}, {l}, [=](const tutti::Step& s) { *s.data<float>(l) = 0; },
            [=](const tutti::Step& s) {
                for (int64_t i = 0; i < rows; ++i)
                    s.gradient<float>(p)[i] += static_cast<float>(rows);
            });
        tutti::Losses losses = forward(m, scale);
        losses.push_back(l);
        return losses;
    };
    tutti::Trainer trainer(std::move(spec));
    for (int d = 0; d < devices; ++d) {
        const int replica = rank * devices + d;
        trainer.write<float>(d, "shard",
                             std::vector<float>(2 + replica, static_cast<float>(10 + replica)));
    }
    trainer.init_sync();
    for (int i = 0; i < 3; ++i) trainer.step();
    for (int d = 0; d < devices; ++d) {
        const int replica = rank * devices + d;
        require(trainer.read<float>(d, "shard") ==
                    std::vector<float>(2 + replica, static_cast<float>(10 + replica)),
                "a shard was broadcast");
        require(
            trainer.read<float>(d, "shard_grad") ==
                std::vector<float>(2 + replica, static_cast<float>(micro_batches * (2 + replica))),
            "a shard's gradient was reduced, or a micro-batch's is lost");
    }
    require(trainer.reduced_bytes("shard") == 0, "a shard was counted");
    require(trainer.reduced_bytes("layer1/w") == 3 * 15 * sizeof(float), "bytes");
}

}  // namespace

TEST_CASE("distributed: shards are neither reduced, broadcast nor compared") {
    for (const int micro_batches : {1, 3})
        for (const bool fixed_order : {false, true})
            expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
                train_shards(comm, rank, micro_batches, fixed_order);
            }));
}

TEST_CASE(
    "local sgd: one local step equals synchronous SGD, k steps need one k-th of the traffic") {
    const net::Shape shape;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
        const int steps = 8;
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        const Run synchronous = run(shape, 2, comm, options, steps);
        options.local_steps = 1;
        const Run one = run(shape, 2, comm, options, steps);
        require(net::largest_difference(one.after, synchronous.after) < 1e-6, "k = 1 differs");
        require(net::largest_difference(one.after, one.before) > 0.01, "nothing was learnt");
        options.local_steps = 4;
        const Run four = run(shape, 2, comm, options, steps);
        const Run none = run(shape, 2, comm, options, 0);
        const auto sent = [&](const Run& r) {
            return r.counters.collective_bytes - none.counters.collective_bytes;
        };
        require(sent(one) == 4 * sent(four), "the traffic is not a quarter");
        require(four.after == of_rank_0(comm, four.after), "ranks differ after an average");
        require(net::largest_difference(four.after, synchronous.after) > 0, "it is not local");
    }));
}

TEST_CASE("accumulation: micro-steps do not communicate") {
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.micro_batches = 5;
        const Run done = run(net::Shape{}, 1, comm, options, 3);
        const Run none = run(net::Shape{}, 1, comm, options, 0);
        require(done.counters.collectives - none.counters.collectives == 3 * done.counters.buckets,
                "more than one reduction a step");
    }));
}

TEST_CASE("uneven: replicas weigh as many as their samples, and those that ran out nothing") {
    const net::Shape shape;
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.uneven = 1;
    const auto way = [&](const std::vector<int64_t>& samples) {
        const Run r = run(shape, 2, nullptr, options, 1, samples);
        return change(r.before, r.after);
    };
    const auto both = way({4, 2}), first = way({4, 0}), second = way({0, 2});
    std::vector<float> expected;
    for (std::size_t i = 0; i < both.size(); ++i)
        expected.push_back((4 * first[i] + 2 * second[i]) / 6);
    REQUIRE(net::largest_difference(both, expected) < 1e-6);
    REQUIRE(net::largest_difference(first, second) > 1e-4);
    const Run alone = run(shape, 1, nullptr, TUTTI_TRAINER_OPTIONS_INIT, 1);
    REQUIRE(net::largest_difference(first, change(alone.before, alone.after)) < 1e-6);
}

TEST_CASE("uneven: a rank that cannot say how many samples it has ends the step on all") {
    std::atomic<int> told = 0;
    const auto problems = ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.uneven = 1;
        tutti::Trainer trainer(net::spec<float>(net::Shape{}, 1, comm, options));
        trainer.init_sync();
        // Rank 1 stays, so that nobody learns of it by its leaving.
        const std::string problem =
            expect::error_of([&] { trainer.step(std::array<int64_t, 1>{rank == 1 ? -1 : 4}); });
        ++told;
        for (int i = 0; i < 3000 && told < 2; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        throw std::runtime_error(told < 2 ? "not told: " + problem : problem);
    });
    expect::words(problems[0], "abort");
    expect::words(problems[1], "samples[0] is -1");
}

TEST_CASE("uneven: a step takes a number for each device's micro-batch, no fewer") {
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.uneven = 1;
    options.micro_batches = 2;
    tutti::Trainer trainer(net::spec<float>(net::Shape(), 2, nullptr, options));
    trainer.init_sync();
    REQUIRE(trainer.step(std::array<int64_t, 4>{4, 4, 4, 1}) == 13);
    expect::error(
        [&] {
            trainer.step(std::array<int64_t, 2>{4, 4});
        },
        "samples has 2 numbers for 2 devices with 2 micro-batches. What to do: pass 4 numbers");
}

TEST_CASE("uneven: computed parameters come from the first replica that still has samples") {
    const net::Shape shape = with_statistics();
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.uneven = 1;
        tutti::Trainer trainer(net::spec<float>(shape, 2, comm, options));
        trainer.init_sync();
        trainer.step(std::array<int64_t, 2>{4, 4});
        const auto before = trainer.read<float>(0, "running_mean");
        trainer.step(std::array<int64_t, 2>{0, rank == 0 ? 0 : 4});  // only the very last has some
        for (int d = 0; d < 2; ++d) {
            require(trainer.read<int64_t>(d, "batches")[0] == 2, "an old counter was spread");
            const auto mean = trainer.read<float>(d, "running_mean");
            require(mean != before && mean == of_rank_0(comm, mean), "old statistics were spread");
        }
        trainer.step(std::array<int64_t, 2>{4, 4});
        require(trainer.read<int64_t>(1, "batches")[0] == 3, "it does not go on");
    }));
}

TEST_CASE("uneven: ranks go on until the last has no more samples, and all know when that is") {
    const net::Shape shape = with_statistics();
    expect::no_problem(ranks::run(3, [&](tutti_comm* comm, int rank) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.uneven = 1;
        options.execution = rank % 2 ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
        tutti::Trainer trainer(net::spec<float>(shape, 1, comm, options));
        net::initialise<float>(trainer, shape);
        trainer.init_sync();
        int64_t left = 6 + 5 * rank;  // 6, 11 and 16 samples, 4 a step
        int steps = 0;
        for (;; ++steps) {
            const int64_t mine = std::min<int64_t>(4, left);
            left -= mine;
            if (trainer.step(std::array{mine}) == 0) break;
            const auto p = net::parameters<float>(trainer, shape);
            require(p == of_rank_0(comm, p), "ranks differ");
        }
        require(steps == 4, "it took another number of steps");
        trainer.epoch_barrier();
        require(trainer.read<int64_t>(0, "iteration")[0] == 4, "an empty step was counted");
    }));
}
