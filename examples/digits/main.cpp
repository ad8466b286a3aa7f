// digits: data-parallel training on real handwritten digits, over tutti.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>

#include "curves.h"
#include "training.h"

namespace {

constexpr double test_share = 0.2;

struct Options {
    int epochs = 30;
    digits::TrainingOptions training;
    std::string execution = "serial";
    std::string data = digits::default_data_path();
    std::string curve;
    double min_accuracy = 0.95;
    std::vector<std::string> compare;
    double within = 1e-5;
};

void add_options(CLI::App& app, Options& o) {
    app.add_option("--epochs", o.epochs, "passes over the training images (default 30)")
        ->check(CLI::PositiveNumber);
    app.add_option("--batch", o.training.batch, "images per step, over all ranks (default 64)")
        ->check(CLI::PositiveNumber);
    app.add_option("--devices", o.training.devices, "devices of each rank (default 1)")
        ->check(CLI::PositiveNumber);
    app.add_option("--execution", o.execution, "order of execution: serial or dag (default serial)")
        ->check(CLI::IsMember({"serial", "dag"}));
    app.add_option("--lr", o.training.rate, "learning rate (default 0.05)")
        ->check(CLI::PositiveNumber);
    app.add_option("--momentum", o.training.momentum, "momentum of the steps (default 0.9)");
    app.add_option("--seed", o.training.seed,
                   "seed of the weights and of the order of images (default 1)");
    app.add_option("--data", o.data,
                   "file of the images (default: the digits.csv.gz of this example)");
    app.add_flag(
        "--recover", o.training.recover,
        "go on with the ranks that are left when a rank is lost, and take in processes that "
        "join");
    app.add_option("--curve", o.curve, "write epoch,loss,accuracy to this file");
    app.add_option("--min-accuracy", o.min_accuracy,
                   "fail below this test accuracy (default 0.95)");
    app.add_option("--compare", o.compare, "do not train, but compare the losses of these curves")
        ->type_name("FILE");
    app.add_option("--within", o.within,
                   "largest difference that --compare accepts (default 1e-5)");
}

int compare(const Options& o) {
    const double difference = digits::largest_difference(o.compare);
    const bool equal = difference <= o.within;
    fmt::print("digits: the losses of {} curves differ by at most {:.2g}, {} {:g}\n",
               o.compare.size(), difference, equal ? "within" : "NOT within", o.within);
    return equal ? 0 : 1;
}

int train(const Options& o) {
    tutti::Communicator comm;
    const int first_rank = comm.rank();
    digits::CurveFile curve(first_rank == 0 ? o.curve : "");
    digits::Training training(comm, digits::load_dataset(o.data, test_share, o.training.seed),
                              o.training);
    digits::Epoch epoch;
    for (int number = training.epochs() + 1; number <= o.epochs; ++number) {
        const auto start = std::chrono::steady_clock::now();
        epoch = training.run_epoch(number == o.epochs);
        if (!epoch.in_step) {
            fmt::print(stderr, "digits: rank {}: the ranks' parameters differ after epoch {}\n",
                       first_rank, number);
            return 1;
        }
        if (training.rank() != 0) continue;  // the lowest rank that is left reports
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        fmt::print(
            "epoch {:2}: loss {:.6f}, accuracy {:.1f} % training, {:.1f} % test, {:.3f} s, "
            "{} ranks\n",
            number, epoch.loss, 100 * epoch.training_accuracy, 100 * epoch.test_accuracy,
            seconds.count(), training.size());
        std::fflush(stdout);
        curve.add(number, epoch.loss, epoch.test_accuracy);
    }
    const bool reports = training.rank() == 0;
    if (reports)
        fmt::print("digits: ranks {}, devices {}, test accuracy {:.1f} %\n", training.size(),
                   o.training.devices, 100 * epoch.test_accuracy);
    if (epoch.test_accuracy >= o.min_accuracy) return 0;
    if (reports)
        fmt::print(stderr, "digits: the test accuracy is below {:g} %\n", 100 * o.min_accuracy);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Options options;
        CLI::App app(
            "Trains a small network on handwritten digits; run it with tutti-run. A process "
            "with TUTTI_JOIN=1 joins a training that runs with --recover.",
            "digits");
        add_options(app, options);
        CLI11_PARSE(app, argc, argv);
        options.training.dag = options.execution == "dag";
        return options.compare.empty() ? train(options) : compare(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "digits: {}\n", error.what());
        return 1;
    }
}
