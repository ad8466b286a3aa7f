// Tests that no row assumes that the host, or one device, can touch another device's memory.
#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

using card::Cards;
using ranks::require;

net::Shape shape_of_all() {
    net::Shape shape;
    shape.widths = {3, 8, 8, 1};
    shape.statistics = true;
    return shape;
}

std::vector<float> trained(tutti::TrainerSpec spec, const net::Shape& shape) {
    const int devices =
        spec.own_devices.empty() ? spec.devices : static_cast<int>(spec.own_devices.size());
    tutti::Trainer trainer(std::move(spec));
    net::initialise<float>(trainer, shape);
    trainer.init_sync();
    for (int i = 0; i < 6; ++i) trainer.step();
    std::vector<float> all;
    for (int d = 0; d < devices; ++d) {
        const auto own = net::parameters<float>(trainer, shape, d);
        all.insert(all.end(), own.begin(), own.end());
        for (float value : trainer.read<float>(d, "running_mean")) all.push_back(value);
        all.push_back(static_cast<float>(trainer.read<int64_t>(d, "batches")[0]));
    }
    return all;
}

// On the host's devices and on cards; how far apart they come.
double difference(int devices, tutti_comm* comm, const tutti_trainer_options& options,
                  tutti_device_memory memory) {
    const net::Shape shape = shape_of_all();
    const auto expected = trained(net::spec<float>(shape, devices, comm, options), shape);
    Cards cards(devices, memory);
    tutti::TrainerSpec spec = net::spec<float>(shape, devices, comm, options);
    spec.own_devices = cards.devices;
    const auto got = trained(std::move(spec), shape);
    for (std::size_t d = 0; d < cards.devices.size(); ++d) {
        require(cards[d].is_empty(), "a card's memory was not given back");
        require(cards[d].runs > 0, "a card's run was never called");
        if (devices > 1 && d > 0)
            require(cards[d].peer_copies > 0, "nothing went from card to card");
    }
    return net::largest_difference(got, expected);
}

tutti_trainer_options small_buckets() {
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.first_bucket_bytes = 64;
    options.bucket_bytes = 256;
    options.micro_batches = 2;
    return options;
}

}  // namespace

TEST_CASE("own memory: what cards train is what the host's devices train") {
    const auto memory = GENERATE(TUTTI_MEMORY_OWN, TUTTI_MEMORY_REACHABLE);
    for (int devices : {1, 3}) {
        const auto on_all = [&](const tutti_trainer_options& options, double limit) {
            require(difference(devices, nullptr, options, memory) <= limit, "one process differs");
            ranks::on_ranks(2, [&](tutti::Communicator& comm) {
                require(difference(devices, comm.get(), options, memory) <= limit,
                        "two ranks differ");
            });
        };
        tutti_trainer_options options = small_buckets();
        on_all(options, 1e-6);
        options.computed_sync = TUTTI_COMPUTED_MEAN;
        options.execution = TUTTI_EXECUTION_DAG;
        on_all(options, 1e-6);
        options = small_buckets();
        options.fixed_order = 1;
        on_all(options, 0);
        options = small_buckets();
        options.local_steps = 2;
        on_all(options, 1e-6);
    }
}

TEST_CASE("own memory: devices of two kinds exchange by way of the host") {
    const net::Shape shape = shape_of_all();
    const tutti_trainer_options options = small_buckets();
    const auto expected = trained(net::spec<float>(shape, 3, nullptr, options), shape);
    for (std::size_t cpu_at : {0, 1}) {
        Cards cards(2);
        tutti_device* cpu = nullptr;
        REQUIRE(tutti_device_create_cpu(&cpu) == TUTTI_OK);
        tutti::TrainerSpec spec = net::spec<float>(shape, 3, nullptr, options);
        spec.own_devices = cards.devices;
        spec.own_devices.insert(spec.own_devices.begin() + static_cast<std::ptrdiff_t>(cpu_at),
                                cpu);
        REQUIRE(net::largest_difference(trained(std::move(spec), shape), expected) < 1e-6);
        tutti_device_destroy(cpu);
    }
}

TEST_CASE("own memory: 16-bit gradients are added where they can be, with one rounding") {
    // The cards' own functions have no 16-bit addition: the sum is made by way of the host.
    const auto sum = [](std::vector<tutti_device*> own) {
        tutti::TrainerSpec spec{.devices = 2, .own_devices = std::move(own)};
        spec.forward = [](tutti::Model& m, double) {
            const tutti_buffer w = m.buffer("w", TUTTI_PARAMETER, TUTTI_BFLOAT16, {5});
            const tutti_buffer loss = m.activation<float>("loss", {1});
            const int replica = m.replica();
            m.operation(
                "values", {w}, {loss}, [=](const tutti::Step& s) { *s.data<float>(loss) = 0; },
                [=](const tutti::Step& s) {
                    for (uint16_t i = 0; i < 5; ++i)
                        s.gradient<uint16_t>(w)[i] =
                            static_cast<uint16_t>(0x3f80 + 0x101 * (replica + 1) * i);
                });
            return tutti::Losses{loss};
        };
        spec.update = [](tutti::Model& m, double) { m.iteration(); };
        tutti::Trainer trainer(std::move(spec));
        trainer.init_sync();
        trainer.step();
        REQUIRE(trainer.read<uint16_t>(0, "w_grad") == trainer.read<uint16_t>(1, "w_grad"));
        return trainer.read<uint16_t>(0, "w_grad");
    };
    const Cards cards(2);
    REQUIRE(sum(cards.devices) == sum({}));
}

TEST_CASE("copy: a device reads what another's operations leave, without the host") {
    // Device 0 writes late, device 1 copies early: the copy comes after.
    const auto run = [](std::vector<tutti_device*> own, tutti_trainer_options options) {
        tutti::TrainerSpec spec{.devices = 3, .own_devices = std::move(own), .options = options};
        spec.forward = [](tutti::Model& m, double) {
            const tutti_buffer loss = m.activation<float>("loss", {1});
            const tutti_buffer x = m.activation<float>("x", {4}, TUTTI_KEEP);
            if (m.device() > 0)
                m.copy("fetch", m.find("device_" + std::to_string(m.device() - 1) + "/x"), x);
            for (int i = 0; m.device() == 0 && i < 5; ++i)
                m.operation("write" + std::to_string(i), {x}, {x}, [=](const tutti::Step& s) {
                    for (int k = 0; k < 4; ++k)
                        s.data<float>(x)[k] = static_cast<float>(s.iteration() * 10 + i + k);
                });
            if (m.device() == 1)
                m.operation("more", {x}, {x},
                            [=](const tutti::Step& s) { *s.data<float>(x) += 1; });
            return tutti::Losses{loss};
        };
        tutti::Trainer trainer(std::move(spec));
        trainer.init_sync();
        std::vector<float> seen;
        for (int i = 0; i < 3; ++i) {
            trainer.step();
            for (int d : {1, 2})
                for (float value : trainer.read<float>(d, "x")) seen.push_back(value);
        }
        return seen;
    };
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    const std::vector<float> one = {5, 5, 6, 7, 5, 5, 6, 7};
    std::vector<float> expected;
    for (int step = 0; step < 3; ++step) expected.insert(expected.end(), one.begin(), one.end());
    REQUIRE(run({}, options) == expected);
    for (auto execution : {TUTTI_EXECUTION_SERIAL, TUTTI_EXECUTION_DAG}) {
        options.execution = execution;
        const Cards cards(3);
        REQUIRE(run(cards.devices, options) == expected);
        REQUIRE(cards[1].peer_copies == 3);
        REQUIRE(cards[2].peer_copies == 3);
    }
}

TEST_CASE("copy: what makes no sense is refused, and names the buffers") {
    const auto build = [](const std::function<void(tutti::Model&)>& declare) {
        tutti::TrainerSpec spec{.devices = 2};
        spec.forward = [=](tutti::Model& m, double) {
            m.activation<float>("x", {4});
            m.activation<float>("y", {3});
            m.activation<float>("z", {4});
            if (m.device() == 1) declare(m);
            return tutti::Losses{m.activation<float>("loss", {1})};
        };
        expect::error([&] { tutti::Trainer(std::move(spec)); }, "");
        return std::string(tutti_trainer_last_error());
    };
    expect::words(build([](tutti::Model& m) { m.copy("c", m.find("x"), m.find("y")); }),
                  "'device_1/x' has 16 bytes of float32, 'device_1/y' 12");
    expect::words(build([](tutti::Model& m) { m.copy("c", m.find("x"), m.find("device_0/x")); }),
                  "writes 'device_0/x' of another device");
    tutti::TrainerSpec late{.devices = 2};
    late.forward = [](tutti::Model& m, double) {
        const tutti_buffer x = m.activation<float>("x", {4}), z = m.activation<float>("z", {4});
        if (m.device() == 1) m.copy("early", m.find("device_0/x"), x);
        m.collective("all", TUTTI_COLLECTIVE_ALLREDUCE, z, m.activation<float>("sum", {4}));
        if (m.device() == 0)
            m.operation("late", {}, {x}, [=](const tutti::Step& s) { *s.data<float>(x) = 1; });
        return tutti::Losses{m.activation<float>("loss", {1})};
    };
    expect::error([&] { tutti::Trainer(std::move(late)); },
                  "copy 'device_1/early' reads the output of 'device_0/late', which runs after a");
}

TEST_CASE("own memory: checkpoints go to and from cards, on another number of them") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    const net::Shape shape = shape_of_all();
    ranks::on_ranks(2, [&](tutti::Communicator& comm) {
        const Cards cards(2);
        tutti::TrainerSpec spec = net::spec<float>(shape, 2, comm.get());
        spec.own_devices = cards.devices;
        tutti::Trainer trainer(std::move(spec));
        net::initialise<float>(trainer, shape);
        trainer.init_sync();
        trainer.step();
        trainer.save(path);
        const auto saved = net::parameters<float>(trainer, shape);
        const Cards others(3);
        tutti::TrainerSpec more = net::spec<float>(shape, 3, comm.get());
        more.own_devices = others.devices;
        tutti::Trainer restored(std::move(more));
        restored.load(path);
        for (int d = 0; d < 3; ++d)
            require(net::parameters<float>(restored, shape, d) == saved, "another value");
        restored.step();
    });
}
