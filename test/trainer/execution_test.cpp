// Rows 4 and 6: the ways to run a step give the same bits, and none of them gets stuck.
#include <sched.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "support/catch.h"
#include "support/sanitized.h"
#include "trainer/card.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

namespace test = tutti::test;
using ranks::require;
using test::sanitized;

net::Shape deep_shape() {
    net::Shape shape;
    shape.samples = 32;
    shape.widths = {3};
    for (int l = 0; l < 10; ++l) shape.widths.push_back(16);
    shape.widths.push_back(1);
    shape.statistics = true;
    return shape;
}

std::vector<float> trained(const net::Shape& shape, int devices, tutti_comm* comm,
                           tutti_trainer_options options, std::size_t* bytes = nullptr) {
    tutti::Trainer trainer(net::spec<float>(shape, devices, comm, options));
    net::initialise<float>(trainer, shape);
    trainer.init_sync();
    for (int i = 0; i < (sanitized ? 3 : 10); ++i) trainer.step();
    if (bytes) *bytes = trainer.counters().device_bytes;
    return net::parameters<float>(trainer, shape, devices - 1);
}

// Delays steps at random, differently on each rank.
tutti::TrainerSpec with_delays(tutti::TrainerSpec spec, int rank) {
    auto random = std::make_shared<std::mt19937>(static_cast<unsigned>(rank) + 1);
    auto mutex = std::make_shared<std::mutex>();
    const auto forward = spec.forward;
    spec.forward = [=](tutti::Model& m, double scale) {
        const auto delay = [=](const tutti::Step&) {
            unsigned long us = 0;
            {
                const std::lock_guard lock(*mutex);
                us = (*random)() % 8 ? 0 : (*random)() % 300;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(us));
        };
        const tutti_buffer slow = m.activation<float>("slow", {1});
        m.operation("delay", {m.find("x")}, {slow}, delay);
        return forward(m, scale);
    };
    return spec;
}

std::ptrdiff_t threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// An operation as its rank's flight recorder has it.
struct Called {
    std::string call;
    int ring;
    bool operator==(const Called&) const = default;
};

// The gradients' sums that a rank had called when one failed, in order.
std::vector<Called> reductions_of(const test::Folder& folder, int rank) {
    std::ifstream lines(folder.file("calls." + std::to_string(rank) + ".jsonl"));
    std::vector<Called> called;
    for (std::string line; std::getline(lines, line);) {
        const auto entry = nlohmann::json::parse(line);
        const std::string call = entry["call"];
        if (call.starts_with("allreduce") && call.ends_with("float32, sum)"))
            called.push_back({call, entry["ring"]});
    }
    return called;
}

}  // namespace

TEST_CASE("execution: serial and graph give the same bits, with any number of threads") {
    const net::Shape shape = deep_shape();
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.first_bucket_bytes = 256;
    options.bucket_bytes = 2048;
    for (int devices : {1, 3}) {
        const auto serial = trained(shape, devices, nullptr, options);
        tutti_trainer_options dag = options;
        dag.execution = TUTTI_EXECUTION_DAG;
        for (int threads : {1, 2, 5}) {
            dag.threads = threads;
            dag.max_in_flight = threads;
            REQUIRE(trained(shape, devices, nullptr, dag) == serial);
        }
        expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
            require(trained(shape, devices, comm, options) == trained(shape, devices, comm, dag),
                    "serial and graph differ");
        }));
    }
}

TEST_CASE("execution: kind and size come from the environment too") {
    const net::Shape shape;
    const auto build = [&] { const tutti::Trainer trainer(net::spec<float>(shape, 1)); };
    ::setenv("TUTTI_EXECUTION", "sideways", 1);
    expect::error([&] { build(); }, "unknown TUTTI_EXECUTION 'sideways'");
    ::setenv("TUTTI_EXECUTION", "dag", 1);
    ::setenv("TUTTI_TRAINER_THREADS", "0", 1);
    expect::error([&] { build(); }, "TUTTI_TRAINER_THREADS is '0'");
    ::setenv("TUTTI_TRAINER_THREADS", "2", 1);
    const auto before = threads();
    tutti::Trainer trainer(net::spec<float>(shape, 1));
    REQUIRE(threads() - before >= 2);
    ::unsetenv("TUTTI_EXECUTION");
    ::unsetenv("TUTTI_TRAINER_THREADS");
    trainer.init_sync();
    trainer.step();
}

TEST_CASE("execution: a graph has no more threads than cores, unless its devices are none") {
    const net::Shape shape;
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.execution = TUTTI_EXECUTION_DAG;
    cpu_set_t all, one;
    REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    const auto added = [&](const tutti::TrainerSpec& spec) {
        REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
        const auto before = threads();
        const tutti::Trainer trainer(spec);
        const auto more = threads() - before;
        REQUIRE(::sched_setaffinity(0, sizeof all, &all) == 0);
        return more;
    };
    // Once for nothing: a sanitizer starts a thread of its own with the first.
    added(net::spec<float>(shape, 3, nullptr, options));
    const auto on_cores = added(net::spec<float>(shape, 3, nullptr, options));
    const card::Cards cards(3);
    tutti::TrainerSpec spec = net::spec<float>(shape, 3, nullptr, options);
    spec.own_devices = cards.devices;
    REQUIRE(added(spec) == on_cores + 3);
    options.threads = 3;
    REQUIRE(added(net::spec<float>(shape, 3, nullptr, options)) == on_cores + 2);
}

TEST_CASE("execution: a graph of one thread runs on the caller's, collectives included") {
    const net::Shape shape = deep_shape();
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.execution = TUTTI_EXECUTION_DAG;
    options.threads = 1;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
        tutti::TrainerSpec spec = net::spec<float>(shape, 2, comm, options);
        const auto input = spec.input;
        const auto caller = std::this_thread::get_id();
        bool elsewhere = false;
        spec.input = [&, input](tutti::Model& m) {
            input(m);
            const tutti_buffer here = m.input<float>("here", {1});
            m.operation("thread", {}, {here}, [&elsewhere, caller](const tutti::Step&) {
                elsewhere = elsewhere || std::this_thread::get_id() != caller;
            });
        };
        tutti::Trainer trainer(spec);
        trainer.init_sync();
        for (int i = 0; i < 20; ++i) trainer.step();
        require(!elsewhere, "an operation ran on another thread");
    }));
}

TEST_CASE("execution: 1,000 steps with means beside gradients and random delays do not deadlock") {
    const int steps = sanitized ? 100 : 1000;
    net::Shape shape;
    shape.widths = {3, 8, 8, 1};
    shape.statistics = true;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.execution = TUTTI_EXECUTION_DAG;
        options.threads = 2;
        options.rings = 2;
        options.first_bucket_bytes = 64;
        options.bucket_bytes = 256;
        options.computed_sync = TUTTI_COMPUTED_MEAN;
        tutti::Trainer trainer(with_delays(net::spec<float>(shape, 2, comm, options), rank));
        net::initialise<float>(trainer, shape);
        trainer.init_sync();
        for (int i = 0; i < steps; ++i) trainer.step();
        std::vector<float> mine = net::parameters<float>(trainer, shape, 1);
        std::vector<float> first = mine;
        require(tutti_broadcast(comm, first.data(), first.size(), TUTTI_FLOAT32, 0) == TUTTI_OK,
                "broadcast");
        require(mine == first, "the replicas' parameters differ");
        require(trainer.counters().buckets > 2, "too few buckets to be out of order");
    }));
}

TEST_CASE("execution: 1,000 cold starts do not deadlock") {
    const int starts = sanitized ? 100 : 1000;
    net::Shape shape;
    shape.statistics = true;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int i = 0; i < starts; ++i) {
            tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
            options.execution = i % 2 ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
            options.threads = 2;
            options.first_bucket_bytes = 32;
            options.bucket_bytes = 32;
            options.computed_sync = TUTTI_COMPUTED_MEAN;
            tutti::Trainer trainer(net::spec<float>(shape, 1, comm, options));
            trainer.init_sync();
            if (random() % 4 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
            trainer.step();
        }
    }));
}

TEST_CASE("execution: every rank calls the same, each by the ring that its turn gave it") {
    net::Shape shape;
    shape.widths = {3, 8, 8, 1};
    shape.statistics = true;
    constexpr int rings = 2, steps = 12;
    for (auto execution : {TUTTI_EXECUTION_SERIAL, TUTTI_EXECUTION_DAG}) {
        const test::Folder folder;
        std::vector<int64_t> buckets(3);
        const auto body = [&](tutti_comm* comm, int rank) {
            tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
            options.execution = execution;
            options.threads = 2;
            options.rings = rings;
            options.first_bucket_bytes = 64;
            options.bucket_bytes = 256;
            tutti::TrainerSpec spec = with_delays(net::spec<float>(shape, 2, comm, options), rank);
            const auto forward = spec.forward;
            spec.forward = [=](tutti::Model& m, double scale) {
                // The others cannot go on without this rank, and tell what they had called.
                m.operation("end", {m.find("x")}, {}, [=](const tutti::Step& s) {
                    if (rank == 2 && s.iteration() == steps) throw std::runtime_error("enough");
                });
                return forward(m, scale);
            };
            tutti::Trainer trainer(std::move(spec));
            trainer.init_sync();
            buckets[static_cast<std::size_t>(rank)] = trainer.counters().buckets;
            for (int i = 0; i <= steps; ++i) trainer.step();
        };
        const std::vector<std::string> problems = ranks::run(3, body, folder);
        INFO(problems[2]);
        REQUIRE(problems[2].find("enough") != std::string::npos);
        const auto first = reductions_of(folder, 0), second = reductions_of(folder, 1);
        const auto each = static_cast<std::size_t>(buckets[0]);
        REQUIRE(each > rings);
        const std::size_t whole = steps * each;
        REQUIRE(std::min(first.size(), second.size()) >= whole);
        for (std::size_t i = 0; i < whole; ++i) {
            INFO(i << ": " << first[i].call << " by ring " << first[i].ring);
            REQUIRE(first[i] == second[i]);
            REQUIRE(first[i].ring == first[i % each].ring);
            const int next = (first[i].ring + 1) % rings;
            if ((i + 1) % each) REQUIRE(first[i + 1].ring == next);
        }
    }
}

TEST_CASE("execution: no more rings than the communicator has") {
    const net::Shape shape;
    const auto step = [&](int rings) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        options.rings = rings;
        options.first_bucket_bytes = options.bucket_bytes = 32;
        tutti::Trainer trainer(net::spec<float>(shape, 2, nullptr, options));
        trainer.init_sync();
        trainer.step();
    };
    expect::error([&] { step(3); }, "options.rings is 3, but the communicator has 2 rings");
    ::setenv("TUTTI_NRINGS", "1", 1);
    expect::error([&] { step(2); }, "set options.rings to 0 to 1, or TUTTI_NRINGS to 2");
    step(0);
    ::unsetenv("TUTTI_NRINGS");
}

TEST_CASE("execution: a failure on one rank ends the step on all, with its cause where it was") {
    const net::Shape shape;
    for (auto execution : {TUTTI_EXECUTION_SERIAL, TUTTI_EXECUTION_DAG}) {
        const auto problems = ranks::run(3, [&](tutti_comm* comm, int rank) {
            tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
            options.execution = execution;
            tutti::TrainerSpec spec = net::spec<float>(shape, 1, comm, options);
            const auto forward = spec.forward;
            spec.forward = [=](tutti::Model& m, double scale) {
                m.operation("bad", {m.find("x")}, {}, [=](const tutti::Step& s) {
                    if (rank == 1 && s.iteration() == 2) throw std::runtime_error("bad luck");
                });
                return forward(m, scale);
            };
            tutti::Trainer trainer(std::move(spec));
            trainer.init_sync();
            std::string first;
            try {
                for (int i = 0; i < 5; ++i) trainer.step();
            } catch (const tutti::Error& error) {
                first = error.what();
            }
            require(first.find(rank == 1 ? "threw an exception: bad luck" : "bort") !=
                        std::string::npos,
                    "not the cause: " + first);
            try {
                trainer.step();
                throw std::runtime_error("it goes on");
            } catch (const tutti::Error& error) {
                require(
                    std::string(error.what()).find("the trainer ended after") != std::string::npos,
                    error.what());
            }
        });
        expect::no_problem(problems);
    }
}

TEST_CASE("memory: sharing among gradients and activations saves 30 % and changes no bit") {
    net::Shape shape = deep_shape();
    shape.samples = 128;
    tutti_trainer_options plain = TUTTI_TRAINER_OPTIONS_INIT;
    tutti_trainer_options shared = plain;
    shared.optimize_gradient_memory = 1;
    std::size_t plain_bytes = 0, shared_bytes = 0;
    const auto expected = trained(shape, 2, nullptr, plain, &plain_bytes);
    REQUIRE(trained(shape, 2, nullptr, shared, &shared_bytes) == expected);
    INFO(shared_bytes << " of " << plain_bytes);
    REQUIRE(static_cast<double>(shared_bytes) <= 0.7 * static_cast<double>(plain_bytes));
    shared.execution = TUTTI_EXECUTION_DAG;
    shared.threads = 4;
    for (int i = 0; i < (sanitized ? 1 : 3); ++i)
        REQUIRE(trained(shape, 2, nullptr, shared) == expected);
}

TEST_CASE("memory: a buffer that shares memory cannot be read between steps") {
    net::Shape shape = deep_shape();
    tutti_trainer_options shared = TUTTI_TRAINER_OPTIONS_INIT;
    shared.optimize_gradient_memory = 1;
    tutti::Trainer trainer(net::spec<float>(shape, 1, nullptr, shared));
    expect::error([&] { trainer.read<float>(0, "layer1/y"); }, "TUTTI_KEEP");
    trainer.read<float>(0, "loss");
}
