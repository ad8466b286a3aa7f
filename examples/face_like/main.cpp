// A model like face recognition: every rank has the embedding, and the classifier's classes are
// spread over the ranks.
// usage: tutti-run -n N face_like [--epochs E] [--checkpoint FILE [--resume]] [--expect ACCURACY]
//        [--execution serial|dag]
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <numeric>
#include <string>

#include "net.h"

namespace {

constexpr std::size_t global_batch = 60;
constexpr double test_share = 0.2;
constexpr uint64_t seed = 20;

struct Options {
    int epochs = 12;
    std::string checkpoint;
    bool resume = false;
    double expect = 0;
    std::string execution = "serial";
};

/// This rank's samples of a global batch. The global batch is the same for every number of ranks.
std::vector<std::size_t> share_of(const std::vector<std::size_t>& order, std::size_t begin,
                                  const tutti::Communicator& comm) {
    std::vector<std::size_t> own;
    const std::size_t end = std::min(order.size(), begin + global_batch);
    for (std::size_t i = begin + static_cast<std::size_t>(comm.rank()); i < end;
         i += static_cast<std::size_t>(comm.size()))
        own.push_back(order[i]);
    return own;
}

std::vector<std::size_t> all_of(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

int run(const Options& options) {
    tutti::Communicator comm;
    const digits::Dataset data =
        digits::load_dataset(digits::default_data_path(), test_share, seed);
    const auto ranks = static_cast<std::size_t>(comm.size());
    face_like::Net net(
        comm, {.capacity = (global_batch + ranks - 1) / ranks, .dag = options.execution == "dag"});
    const int begin = options.resume ? net.load(options.checkpoint) : 0;
    const face_like::Batch test = face_like::to_batch(data.test, all_of(data.test.size()));
    double loss = 0, accuracy = net.accuracy(test);
    for (int epoch = begin; epoch < options.epochs; ++epoch) {
        std::vector<std::size_t> order = all_of(data.training.size());
        std::mt19937_64 random(seed +
                               static_cast<uint64_t>(epoch));  // a resumed run gets the same order
        digits::shuffle(order, random);
        loss = 0;
        for (std::size_t at = 0; at < order.size(); at += global_batch)
            loss += net.train(face_like::to_batch(data.training, share_of(order, at, comm)));
        loss /= static_cast<double>((order.size() + global_batch - 1) / global_batch);
        accuracy = net.accuracy(test);
        if (comm.rank() == 0)
            fmt::print("epoch {} loss {:.6f} accuracy {:.4f}\n", epoch + 1, loss, accuracy);
        if (!options.checkpoint.empty()) net.save(options.checkpoint, epoch + 1);
    }
    if (accuracy >= options.expect) return 0;
    fmt::print(stderr, "face_like: accuracy {:.4f}, expected {}\n", accuracy, options.expect);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Recognition with classes spread over the ranks");
    app.add_option("--epochs", options.epochs,
                   "number of epochs, including those before a checkpoint");
    auto* checkpoint = app.add_option("--checkpoint", options.checkpoint,
                                      "file for a checkpoint after every epoch");
    app.add_flag("--resume", options.resume, "continue from the checkpoint")->needs(checkpoint);
    app.add_option("--execution", options.execution,
                   "order of execution: serial or dag (default serial)")
        ->check(CLI::IsMember({"serial", "dag"}));
    app.add_option("--expect", options.expect, "fail below this test accuracy");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "face_like: {}\n", error.what());
        return 1;
    }
}
