// Rows 1, 2, 3 and 5: what parallelize runs and checks, how losses are scaled, forward-only models.
#include <cstring>

#include "support/catch.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

const net::Shape shape;

using expect::error_of;

void expect_build_error(tutti::TrainerSpec spec, const std::string& words) {
    expect::words(error_of([&] { tutti::Trainer(std::move(spec)); }), words);
}

std::vector<double> trained(int devices, int micro_batches, int steps, bool fixed,
                            tutti_comm* comm = nullptr, tutti_scale scale = TUTTI_SCALE_LOSS) {
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.micro_batches = micro_batches;
    options.fixed_order = fixed;
    options.scale = scale;
    tutti::Trainer trainer(net::spec<double>(shape, devices, comm, options));
    net::initialise<double>(trainer, shape);
    trainer.init_sync();
    for (int i = 0; i < steps; ++i) trainer.step();
    for (int d = 1; d < devices; ++d)
        if (net::parameters<double>(trainer, shape, d) != net::parameters<double>(trainer, shape))
            throw std::runtime_error("the devices' parameters differ");
    return net::parameters<double>(trainer, shape);
}

}  // namespace

TEST_CASE("trainer: every builder runs once for each device in its scope") {
    tutti::TrainerSpec spec = net::spec<float>(shape, 3);
    std::vector<int> inputs, forwards, updates;
    const auto input = spec.input;
    const auto forward = spec.forward;
    const auto update = spec.update;
    spec.input = [&](tutti::Model& m) { inputs.push_back(m.device()), input(m); };
    spec.forward = [&](tutti::Model& m, double scale) {
        forwards.push_back(m.device());
        REQUIRE(scale == 1.0 / 3);
        return forward(m, scale);
    };
    spec.update = [&](tutti::Model& m, double scale) {
        updates.push_back(m.device());
        REQUIRE(scale == 1);
        update(m, scale);
    };
    const tutti::Trainer trainer(std::move(spec));
    const std::vector<int> each = {0, 1, 2};
    REQUIRE(inputs == each);
    REQUIRE(forwards == each);
    REQUIRE(updates == each);
    for (int d = 0; d < 3; ++d) REQUIRE(trainer.find(d, "layer1/w").data != nullptr);
    REQUIRE(trainer.find(0, "layer1/w").data != trainer.find(1, "layer1/w").data);
}

TEST_CASE("trainer: a forward builder that returns no losses is an error naming it") {
    tutti::TrainerSpec spec = net::spec<float>(shape, 2);
    const auto forward = spec.forward;
    spec.forward = [=](tutti::Model& m, double scale) {
        const tutti::Losses losses = forward(m, scale);
        return m.device() == 1 ? tutti::Losses{} : losses;
    };
    expect_build_error(std::move(spec), "the forward builder of scope device_1 added no loss");
    tutti::TrainerSpec none;
    expect_build_error(std::move(none), "the model has no forward builder");
}

TEST_CASE("trainer: a builder that throws or declares a buffer twice is named") {
    tutti::TrainerSpec spec = net::spec<float>(shape, 2);
    spec.update = [](tutti::Model&, double) { throw std::runtime_error("out of cheese"); };
    expect_build_error(spec, "the update builder of scope device_0 failed: out of cheese");
    spec.update = [](tutti::Model& m, double) {
        m.state<float>("v", {1});
        m.state<float>("v", {1});
    };
    expect_build_error(spec, "buffer 'device_0/v' is declared twice");
    spec.update = [](tutti::Model& m, double) { m.state<double>("iteration", {1}); };
    expect_build_error(spec, "'device_0/iteration' has the name of the trainer's counter");
    spec.update = [](tutti::Model& m, double) { m.state<float>("a b", {1}); };
    expect_build_error(spec, "a buffer is named 'a b'");
}

TEST_CASE("trainer: what the layer cannot add is refused when it is built") {
    tutti::TrainerSpec spec = net::spec<float>(shape, 2);
    const auto forward = spec.forward;
    spec.forward = [=](tutti::Model& m, double scale) {
        m.buffer("eighth", TUTTI_PARAMETER, TUTTI_FLOAT8_E4M3, {4});
        return forward(m, scale);
    };
    const tutti::Trainer plain(spec);
    spec.options.fixed_order = 1;
    expect_build_error(spec, "options.fixed_order does not support parameters of float8");
    spec.options.fixed_order = 0;
    spec.options.local_steps = 2;
    expect_build_error(spec, "options.local_steps does not support parameters of float8");
}

TEST_CASE("trainer: options and variables that make no sense are named") {
    const auto with = [](const std::function<void(tutti_trainer_options&)>& change) {
        tutti::TrainerSpec spec = net::spec<float>(shape, 1);
        change(spec.options);
        return spec;
    };
    using Options = tutti_trainer_options;
    expect_build_error(with([](Options& o) { o.micro_batches = 0; }), "options.micro_batches is 0");
    expect_build_error(with([](Options& o) { o.threads = -1; }), "options.threads is -1");
    expect_build_error(with([](Options& o) { o.struct_size = 3; }), "options.struct_size is 3");
    expect_build_error(with([](Options& o) { o.uneven = o.local_steps = 1; }),
                       "options.uneven and options.local_steps exclude each other");
    expect_build_error(with([](Options& o) {
                           o.uneven = 1;
                           o.scale = TUTTI_SCALE_LEARNING_RATE;
                       }),
                       "options.uneven and options.scale = TUTTI_SCALE_LEARNING_RATE exclude");
    tutti::TrainerSpec none = net::spec<float>(shape, 0);
    expect_build_error(none, "spec.devices has 0 devices");
}

TEST_CASE("trainer: a communicator of one rank is legal") {
    const auto problems = ranks::run(1, [](tutti_comm* comm, int) {
        if (trained(2, 1, 3, false, comm) != trained(2, 1, 3, false))
            throw std::runtime_error("not the same as without");
    });
    REQUIRE(problems[0] == "");
}

TEST_CASE("trainer: the same global batch gives the same parameters on 1, 2 and 4 replicas") {
    const std::vector<double> one = trained(1, 4, 20, false);
    REQUIRE(net::largest_difference(one, trained(1, 4, 0, false)) > 0.01);
    REQUIRE(net::largest_difference(one, trained(2, 2, 20, false)) < 1e-12);
    REQUIRE(net::largest_difference(one, trained(4, 1, 20, false)) < 1e-12);
}

TEST_CASE("trainer: with fixed order, replicas and micro-batches give the same bits") {
    const std::vector<double> one = trained(1, 4, 20, true);
    REQUIRE(one == trained(2, 2, 20, true));
    REQUIRE(one == trained(4, 1, 20, true));
    for (const auto& [count, devices_of_each, micro_batches] :
         {std::array{2, 2, 1}, std::array{2, 1, 2}, std::array{4, 1, 1}}) {
        const int devices = devices_of_each, micro = micro_batches;  // for clang 14's lambdas
        const auto problems = ranks::run(count, [&](tutti_comm* comm, int) {
            if (trained(devices, micro, 20, true, comm) != one)
                throw std::runtime_error("other bits than one replica's");
        });
        for (const std::string& problem : problems) REQUIRE(problem == "");
    }
}

TEST_CASE("trainer: scaling the learning rate instead of the loss gives the same step") {
    const auto loss = trained(2, 2, 10, false);
    const auto rate = trained(2, 2, 10, false, nullptr, TUTTI_SCALE_LEARNING_RATE);
    REQUIRE(net::largest_difference(loss, rate) < 1e-12);
    tutti::TrainerSpec spec = net::spec<float>(shape, 2);
    spec.options.scale = TUTTI_SCALE_LEARNING_RATE;
    const auto forward = spec.forward;
    const auto update = spec.update;
    spec.forward = [=](tutti::Model& m, double scale) {
        REQUIRE(scale == 1);
        return forward(m, scale);
    };
    spec.update = [=](tutti::Model& m, double scale) {
        REQUIRE(scale == 0.5);
        update(m, scale);
    };
    const tutti::Trainer trainer(std::move(spec));
}

TEST_CASE("trainer: without an update builder there are no gradients and no collectives") {
    net::Shape deep;
    deep.widths = {3, 64, 64, 64, 64, 64, 1};
    const auto problems = ranks::run(2, [&](tutti_comm* comm, int) {
        tutti::Trainer training(net::spec<double>(deep, 2, comm));
        tutti::TrainerSpec spec = net::spec<double>(deep, 2, comm);
        spec.update = {};
        spec.options.parameters_of = training.get();
        tutti::Trainer testing(std::move(spec));
        net::initialise<double>(training, deep);
        training.init_sync();
        for (int i = 0; i < 3; ++i) testing.step();
        const tutti_trainer_counters c = testing.counters();
        if (c.gradient_buffers != 0) throw std::runtime_error("it has gradient buffers");
        if (c.collectives != 0 || c.collective_bytes != 0)
            throw std::runtime_error("it communicates");
        if (testing.find(1, "layer1/w").data != training.find(1, "layer1/w").data)
            throw std::runtime_error("parameters are not shared");
        // Two activations live at a time, not six.
        if (testing.counters().device_bytes > 4 * 64 * 8 * 3)
            throw std::runtime_error("activations share no memory");
        if (!(testing.read<double>(0, "loss")[0] > 0)) throw std::runtime_error("no loss");
    });
    for (const std::string& problem : problems) REQUIRE(problem == "");
}

TEST_CASE("trainer: an operation that touches another device's buffer is an error naming all") {
    tutti::TrainerSpec spec = net::spec<float>(shape, 2);
    const auto forward = spec.forward;
    spec.forward = [=](tutti::Model& m, double scale) {
        const tutti::Losses losses = forward(m, scale);
        if (m.device() == 1) {
            const tutti_buffer own = m.activation<float>("copy", {4, 5});
            m.operation("spy", {m.find("device_0/layer1/y")}, {own}, [](const tutti::Step&) {});
        }
        return losses;
    };
    expect_build_error(std::move(spec),
                       "operation 'device_1/spy' of scope device_1 reads "
                       "'device_0/layer1/y' of scope device_0");
}

TEST_CASE("trainer: devices whose parameters differ are an error naming the parameter") {
    const auto with = [](const std::function<void(tutti::Model&)>& more) {
        tutti::TrainerSpec spec = net::spec<float>(shape, 2);
        const auto forward = spec.forward;
        spec.forward = [=](tutti::Model& m, double scale) {
            more(m);
            return forward(m, scale);
        };
        return spec;
    };
    using tutti::Model;
    expect_build_error(with([](Model& m) {
                           if (m.device() == 0) m.parameter<float>("p", {2});
                       }),
                       "parameter 'p' of scope device_0 is missing in scope device_1");
    expect_build_error(with([](Model& m) {
                           if (m.device() == 1) m.parameter<float>("p", {2});
                       }),
                       "parameter 'p' of scope device_1 is missing in scope device_0");
    expect_build_error(with([](Model& m) { m.parameter<float>("p", {2 + m.device()}); }),
                       "'device_0/p' has the shape [2], 'device_1/p' [3]");
    expect_build_error(with([](Model& m) {
                           m.buffer("p", TUTTI_PARAMETER,
                                    m.device() ? TUTTI_FLOAT64 : TUTTI_FLOAT32, {2});
                       }),
                       "'device_0/p' is of float32, 'device_1/p' of float64");
    const tutti::Trainer shards(
        with([](Model& m) { m.parameter<float>("p", {2 + m.device()}, TUTTI_DISTRIBUTED); }));
}

TEST_CASE("trainer: ranks that declare different models all fail, and one says where") {
    const auto problems = ranks::run(3, [](tutti_comm* comm, int rank) {
        net::Shape mine;
        if (rank == 2) mine.widths = {3, 6, 1};
        const tutti::Trainer trainer(net::spec<float>(mine, 1, comm));
    });
    expect::words(problems[0], "rank 2 declares another model than rank 0");
    expect::words(problems[1], "rank 2 declares another model than rank 0");
    expect::words(problems[2], "parameter 'layer1/w' of float32 [6, 3] here");
    const auto failing = ranks::run(2, [](tutti_comm* comm, int rank) {
        tutti::TrainerSpec spec = net::spec<float>(shape, 1, comm);
        if (rank == 1) spec.update = [](tutti::Model&, double) { throw std::runtime_error("no"); };
        const tutti::Trainer trainer(std::move(spec));
    });
    expect::words(failing[0], "rank 1 could not build its model");
    expect::words(failing[1], "the update builder of scope device_0 failed: no");
}

TEST_CASE("trainer: ranks whose options do not fit together are told which") {
    using Options = tutti_trainer_options;
    const auto two = [](const std::function<void(Options&)>& change) {
        return ranks::run(2, [&](tutti_comm* comm, int rank) {
            tutti::TrainerSpec spec = net::spec<float>(shape, 1, comm);
            if (rank == 1) change(spec.options);
            const tutti::Trainer trainer(std::move(spec));
        });
    };
    const auto expect = [&](const std::function<void(Options&)>& change, const std::string& words) {
        const auto problems = two(change);
        expect::words(problems[0], "rank 1 declares another model than rank 0");
        expect::words(problems[1], words);
    };
    expect([](Options& o) { o.scale = TUTTI_SCALE_LEARNING_RATE; },
           "options.scale learning rate here, options.scale loss on rank 0");
    expect([](Options& o) { o.micro_batches = 2; }, "options.micro_batches 2 here");
    expect([](Options& o) { o.uneven = 1; }, "options.uneven 1 here");
    expect([](Options& o) { o.fixed_order = 1; }, "options.fixed_order 1 here");
    expect([](Options& o) { o.bucket_bytes = 64; }, "options.bucket_bytes 64 here");
    expect([](Options& o) { o.first_bucket_bytes = 64; }, "options.first_bucket_bytes 64 here");
    expect([](Options& o) { o.rings = 1; }, "options.rings 1 here");
    expect([](Options& o) { o.computed_sync = TUTTI_COMPUTED_MEAN; },
           "options.computed_sync mean here");
    expect([](Options& o) { o.computed_every = 3; }, "options.computed_every 3 here");
    expect([](Options& o) { o.local_steps = 2; }, "options.local_steps 2 here");
    expect([](Options& o) { o.check_declarations = 1; }, "options.check_declarations");
    expect([](Options& o) { o.external_autograd = 1; }, "options.external_autograd 1 here");
    // Options that concern one rank alone may differ.
    expect::no_problem(two([](Options& o) {
        o.execution = TUTTI_EXECUTION_DAG;
        o.threads = 2;
        o.max_in_flight = 1;
        o.optimize_gradient_memory = 1;
    }));
}

TEST_CASE("trainer: operations that fail or throw are named, and nothing hangs") {
    for (int devices : {1, 2})
        for (auto execution : {TUTTI_EXECUTION_SERIAL, TUTTI_EXECUTION_DAG}) {
            tutti::TrainerSpec spec = net::spec<float>(shape, devices);
            spec.options.execution = execution;
            bool fails = true;
            const auto forward = spec.forward;
            spec.forward = [&](tutti::Model& m, double scale) {
                m.operation("bad", {m.find("x")}, {}, [&](const tutti::Step&) {
                    if (fails) throw std::runtime_error("the disk is full");
                });
                return forward(m, scale);
            };
            tutti::Trainer trainer(std::move(spec));
            trainer.init_sync();
            const std::string text = error_of([&] { trainer.step(); });
            expect::words(text, "/bad' threw an exception: the disk is full");
            fails = false;
            trainer.step();  // one process: it goes on
        }
}

TEST_CASE("trainer: a false declaration is an error that names it") {
    const auto checked = [](const std::vector<std::string>& reads,
                            const std::vector<std::string>& writes,
                            const std::function<void(float*, float*)>& touch) {
        tutti::TrainerSpec spec = net::spec<float>(shape, 1);
        spec.options.check_declarations = 1;
        auto cached = std::make_shared<std::pair<float*, float*>>();
        const auto forward = spec.forward;
        spec.forward = [=](tutti::Model& m, double scale) {
            const tutti::Losses losses = forward(m, scale);
            m.activation<float>("own", {4}, TUTTI_KEEP);
            std::vector<tutti_buffer> r, w;
            for (const auto& name : reads) r.push_back(m.find(name));
            for (const auto& name : writes) w.push_back(m.find(name));
            m.operation("sly", r, w,
                        [=](const tutti::Step&) { touch(cached->first, cached->second); });
            return losses;
        };
        tutti::Trainer trainer(std::move(spec));
        *cached = {static_cast<float*>(trainer.find(0, "layer1/w").data),
                   static_cast<float*>(trainer.find(0, "own").data)};
        trainer.init_sync();
        return error_of([&] { trainer.step(); });
    };
    const auto copy = [](float* w, float* own) { own[0] = w[0]; };
    REQUIRE(checked({"layer1/w"}, {"own"}, copy) == "no error");
    expect::words(
        checked({}, {"own"}, copy),
        "operation 'device_0/sly' touches 'device_0/layer1/w', which it does not declare");
    expect::words(checked({"layer1/w", "own"}, {}, copy),
                  "operation 'device_0/sly' writes 'device_0/own', which it declares as read only");
}

TEST_CASE(
    "trainer: what one rank is refused is told to the others, and their communicator goes on") {
    expect::no_problem(ranks::run(2, [](tutti_comm* comm, int rank) {
        tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
        if (rank == 1) options.micro_batches = -1;
        const std::string text =
            error_of([&] { tutti::Trainer(net::spec<float>(shape, 1, comm, options)); });
        const char* const wanted = rank == 1 ? "micro_batches" : "rank 1 could not build its model";
        if (text.find(wanted) == text.npos) throw std::runtime_error("it said: " + text);
        if (tutti_barrier(comm) != TUTTI_OK) throw std::runtime_error(tutti_last_error());
    }));
}
