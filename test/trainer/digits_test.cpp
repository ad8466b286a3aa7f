// Row 2 on a real net: batch-norm over all replicas, unequal last batches, momentum.
#include "digits/dataset.h"
#include "digits/training.h"
#include "support/catch.h"
#include "trainer/net.h"

namespace {

std::vector<double> after_an_epoch(int devices, bool dag) {
    tutti::Config config;
    config.set("rank", "0").set("size", "1");
    tutti::Communicator alone(config);
    digits::Training training(alone, digits::load_dataset(digits::default_data_path(), 0.2, 1),
                              {.devices = devices, .dag = dag});
    if (!training.run_epoch(true).in_step)
        throw std::runtime_error("the devices' parameters differ");
    return training.values();
}

}  // namespace

TEST_CASE("trainer: with batch-norm over all replicas, 1, 2 and 4 learn the same in an epoch") {
    const std::vector<double> one = after_an_epoch(1, false);
    REQUIRE(one.size() > 2000);
    REQUIRE(net::largest_difference(one, after_an_epoch(2, false)) < 1e-5);
    REQUIRE(net::largest_difference(one, after_an_epoch(4, true)) < 1e-5);
}
