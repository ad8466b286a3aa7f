// Devices of the program's own: the layer reaches memory through their functions alone.
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "support/catch.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

/// Memory that faults unless one of the device's functions is at it: a host's view of a card. One
/// device, one thread.
struct HiddenMemory {
    std::vector<std::pair<void*, size_t>> pieces;
    int open = 0;
    int runs = 0;
    int copies_left = -1;  // then they fail; -1: never

    void allow(int protection) {
        for (const auto& [data, bytes] : pieces) ::mprotect(data, bytes, protection);
    }
    struct Open {
        explicit Open(void* user) : memory(*static_cast<HiddenMemory*>(user)) {
            if (memory.open++ == 0) memory.allow(PROT_READ | PROT_WRITE);
        }
        ~Open() {
            if (--memory.open == 0) memory.allow(PROT_NONE);
        }
        HiddenMemory& memory;
    };
};

tutti_status alloc(void* user, size_t bytes, void** data) {
    void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return TUTTI_ERR_NO_MEMORY;
    static_cast<HiddenMemory*>(user)->pieces.emplace_back(at, bytes);
    *data = at;
    return TUTTI_OK;
}

void release(void* user, void* data, size_t bytes) {
    auto& pieces = static_cast<HiddenMemory*>(user)->pieces;
    std::erase(pieces, std::pair<void*, size_t>(data, bytes));
    ::munmap(data, bytes);
}

tutti_status copy(void* user, void* to, const void* from, size_t bytes) {
    const HiddenMemory::Open open(user);
    if (open.memory.copies_left == 0) return TUTTI_ERR_SYSTEM;
    if (open.memory.copies_left > 0) --open.memory.copies_left;
    std::memcpy(to, from, bytes);
    return TUTTI_OK;
}

tutti_status zero(void* user, void* data, size_t bytes) {
    const HiddenMemory::Open open(user);
    std::memset(data, 0, bytes);
    return TUTTI_OK;
}

tutti_status axpby(void* user, size_t count, tutti_dtype dtype, double a, const void* x, double b,
                   void* y) {
    const HiddenMemory::Open open(user);
    if (dtype != TUTTI_FLOAT32) return TUTTI_ERR_UNSUPPORTED;
    for (size_t i = 0; i < count; ++i) {
        const double old = b == 0 ? 0 : b * static_cast<float*>(y)[i];
        static_cast<float*>(y)[i] = static_cast<float>(a * static_cast<const float*>(x)[i] + old);
    }
    return TUTTI_OK;
}

tutti_status run(void* user, void (*work)(void*), void* argument) {
    const HiddenMemory::Open open(user);
    ++open.memory.runs;
    work(argument);
    return TUTTI_OK;
}

tutti_device_functions functions() {
    tutti_device_functions f = TUTTI_DEVICE_FUNCTIONS_INIT;
    f.alloc = alloc;
    f.free = release;
    f.copy = copy;
    f.zero = zero;
    f.axpby = axpby;
    f.run = run;
    return f;
}

}  // namespace

TEST_CASE("device: the layer never touches a device's memory but through its functions") {
    net::Shape shape;
    shape.statistics = true;
    for (int local_steps : {0, 2})
        for (int fixed_order : {0, 1}) {
            HiddenMemory memory;
            const tutti_device_functions f = functions();
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
            REQUIRE(memory.pieces.empty());
            tutti_device_destroy(device);
        }
}

TEST_CASE(
    "device: a table without a function is an error naming it, a failing one fails the step") {
    tutti_device_functions f = functions();
    f.zero = nullptr;
    tutti_device* device = nullptr;
    REQUIRE(tutti_device_create(&f, nullptr, &device) == TUTTI_ERR_INVALID);
    expect::words(tutti_trainer_last_error(), "functions.zero is NULL");
    f = functions();
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
    HiddenMemory memory;
    const tutti_device_functions f = functions();
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
        expect::error([&] { trainer.sync(); }, "load again");
        trainer.load(path);
        REQUIRE(net::parameters<float>(trainer, shape) == saved);
        trainer.step();
    }
    tutti_device_destroy(device);
}
