// Devices of the program's own: the layer reaches memory through their functions alone.
#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

using card::Card;

TEST_CASE("device: the layer never touches a device's memory but through its functions") {
    net::Shape shape;
    shape.statistics = true;
    for (int local_steps : {0, 2})
        for (int fixed_order : {0, 1}) {
            Card memory;
            const tutti_device_functions f = card::functions();
            tutti_device* device = nullptr;
            REQUIRE(tutti_device_create(&f, &memory, &device) == TUTTI_OK);
            {
                tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
                options.local_steps = local_steps;
                options.fixed_order = fixed_order;
                options.micro_batches = 3;
                tutti::TrainerSpec spec = net::spec<float>(shape, 1, nullptr, options);
                spec.own_devices = {device};
                tutti::Trainer trainer(std::move(spec));
                net::initialise<float>(trainer, shape);
                trainer.init_sync();
                for (int i = 0; i < 4; ++i) trainer.step();
                tutti::Trainer host(net::spec<float>(shape, 1, nullptr, options));
                net::initialise<float>(host, shape);
                host.init_sync();
                for (int i = 0; i < 4; ++i) host.step();
                REQUIRE(net::largest_difference(net::parameters<float>(trainer, shape),
                                                net::parameters<float>(host, shape)) < 1e-6);
                REQUIRE(trainer.read<int64_t>(0, "iteration")[0] == 4);
            }
            REQUIRE(memory.runs > 0);
            REQUIRE(memory.is_empty());
            tutti_device_destroy(device);
        }
}

TEST_CASE(
    "device: a table without a function is an error naming it, a failing one fails the step") {
    tutti_device_functions f = card::functions();
    f.zero = nullptr;
    tutti_device* device = nullptr;
    REQUIRE(tutti_device_create(&f, nullptr, &device) == TUTTI_ERR_INVALID);
    expect::words(tutti_trainer_last_error(), "functions.zero is NULL");
    f = card::functions();
    f.alloc = [](void*, size_t, void**) { return TUTTI_ERR_NO_MEMORY; };
    REQUIRE(tutti_device_create(&f, nullptr, &device) == TUTTI_OK);
    tutti::TrainerSpec spec = net::spec<float>(net::Shape{}, 1);
    spec.own_devices = {device};
    expect::error([&] { const tutti::Trainer trainer(std::move(spec)); },
                  "the device could not allocate");
    tutti_device_destroy(device);
}

TEST_CASE("device: a checkpoint is copied by its functions; one that failed half-way is not used") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    const net::Shape shape;
    Card memory;
    const tutti_device_functions f = card::functions();
    tutti_device* device = nullptr;
    REQUIRE(tutti_device_create(&f, &memory, &device) == TUTTI_OK);
    {
        tutti::TrainerSpec spec = net::spec<float>(shape, 1);
        spec.own_devices = {device};
        tutti::Trainer trainer(std::move(spec));
        net::initialise<float>(trainer, shape);
        trainer.init_sync();
        trainer.step();
        trainer.save(path);
        const std::vector<float> saved = net::parameters<float>(trainer, shape);
        tutti::Trainer host(net::spec<float>(shape, 2));
        host.load(path);
        REQUIRE(net::parameters<float>(host, shape, 1) == saved);
        trainer.step();
        memory.copies_left = 2;
        expect::error([&] { trainer.load(path); }, "to a device failed");
        memory.copies_left = -1;
        expect::error([&] { trainer.step(); }, "failed half-way");
        expect::error([&] { trainer.sync(); }, "call tutti_trainer_load again");
        trainer.load(path);
        REQUIRE(net::parameters<float>(trainer, shape) == saved);
        trainer.step();
    }
    tutti_device_destroy(device);
}
