// One rank of a training whose ranks are killed. It compares its parameters with those that it
// computes alone, and prints their hash after each step.
// usage: learner STEPS WIDTH DEVICES serial|dag|external
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "trainer/recovery/shared_batch.h"
#include "tutti/tutti.hpp"

namespace {

using shared_batch::in_any_case;
using shared_batch::Learner;
using shared_batch::Way;

std::size_t hash_of(const std::vector<double>& values) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
}

void train(int64_t steps, const Way& way) {
    tutti::Communicator comm;
    const int name = comm.rank();
    Learner learner(comm.get(), way);
    Way of_one = way;
    of_one.recover = false;
    Learner alone(nullptr, of_one);
    alone.trainer.init_sync();
    learner.trainer.init_sync();
    for (int64_t step = 0; step < steps; ++step) {
        way.external ? in_any_case([&] { learner.step(); }) : learner.step();
        alone.step();
        const std::vector<double> values = learner.values();
        const double difference = net::largest_difference(values, alone.values());
        if (!(difference < 1e-9))
            throw std::runtime_error("step " + std::to_string(step) + " differs by " +
                                     std::to_string(difference) + " from that of one rank");
        std::printf("[%d] step %ld ranks %d hash %zu recoveries %ld\n", name,
                    static_cast<long>(step), learner.ranks(), hash_of(values),
                    static_cast<long>(learner.trainer.recoveries()));
        std::fflush(stdout);
        // A step of the small model is shorter than the script needs to kill a rank.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    in_any_case([&] { learner.trainer.epoch_barrier(); });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const std::string mode = argv[4];
    try {
        train(std::stoll(argv[1]), {.devices = std::stoi(argv[3]),
                                    .dag = mode == "dag",
                                    .external = mode == "external",
                                    .width = std::stoll(argv[2])});
    } catch (const std::exception& error) {
        std::printf("WRONG: %s\n", error.what());
        return 1;
    }
    return 0;
}
