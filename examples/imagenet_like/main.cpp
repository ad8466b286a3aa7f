// imagenet_like: data-parallel training from packed record files, over tutti.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "progress.h"
#include "training.h"
#include "tutti/epochs.hpp"

namespace {

using imagenet_like::Progress;
using imagenet_like::Training;

constexpr int efficiency_steps = 40;

struct Options {
    int epochs = 8;
    int epochs_per_gang = 0;  // 0: all
    std::size_t batch_per_device = 0;
    imagenet_like::TrainingOptions training;
    std::string execution = "serial";
    std::string data;
    std::string checkpoints;
    std::string log;
    Progress::When progress = Progress::When::automatic;
    bool efficiency = false;
    double min_top1 = 0;
};

void add_options(CLI::App& app, Options& o) {
    app.add_option("data", o.data, "the folder that imagenet_like_pack made")->required();
    app.add_option("--epochs", o.epochs,
                   "number of epochs, including those before a restart (default 8)")
        ->check(CLI::PositiveNumber);
    auto* batch = app.add_option("--batch", o.training.batch,
                                 "images per step, over all devices of all ranks (default 64)");
    batch->check(CLI::PositiveNumber);
    app.add_option("--batch-per-device", o.batch_per_device,
                   "images per step and device, instead of --batch")
        ->check(CLI::PositiveNumber)
        ->excludes(batch);
    app.add_option("--lr", o.training.schedule.rate,
                   "learning rate for 64 images a step; grows with the batch (default 0.2)")
        ->check(CLI::PositiveNumber);
    app.add_option("--warmup-epochs", o.training.schedule.warmup_epochs,
                   "epochs in which the learning rate rises (default 1)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--devices", o.training.devices, "devices of each rank (default 1)")
        ->check(CLI::PositiveNumber);
    app.add_option("--execution", o.execution, "order of execution: serial or dag (default serial)")
        ->check(CLI::IsMember({"serial", "dag"}));
    app.add_option("--seed", o.training.seed,
                   "seed of weights, order and moved images (default 1)");
    auto* checkpoints =
        app.add_option("--checkpoints", o.checkpoints,
                       "folder: continue from its newest checkpoint, and add one per epoch");
    app.add_option("--epochs-per-gang", o.epochs_per_gang,
                   "end after this number of epochs; the next gang continues (default: all)")
        ->check(CLI::PositiveNumber)
        ->needs(checkpoints);
    app.add_option("--log", o.log, "add epoch,loss,top1,top5,images_per_s to this file");
    app.add_option("--progress", o.progress, "progress bar: auto, always or never (default auto)")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, Progress::When>{{"auto", Progress::When::automatic},
                                                  {"always", Progress::When::always},
                                                  {"never", Progress::When::never}}));
    app.add_flag("--efficiency", o.efficiency,
                 "first train some steps on rank 0 alone, and print the scaling efficiency");
    app.add_option("--min-top1", o.min_top1, "fail if a smaller share of the test images is right");
}

struct Sets {
    imagenet_like::RecordSet training, test;
};

/// Prints messages and progress, on rank 0 only.
class Report {
public:
    Report(const Options& o, const tutti::Communicator& comm)
        : speaks_(comm.rank() == 0),
          ranks_(comm.size()),
          options_(o),
          progress_(speaks_ ? o.progress : Progress::When::never, stderr) {}

    Training::Watch watch(int epoch) {
        return [this, epoch](std::size_t done, std::size_t all, double images_per_s) {
            progress_.show(fmt::format("epoch {}", epoch + 1), done, all, images_per_s);
        };
    }
    void say(const std::string& text) {
        if (!speaks_) return;
        progress_.clear();
        fmt::print("{}\n", text);
        std::fflush(stdout);
    }
    void epoch(int number, const imagenet_like::Epoch& e, const imagenet_like::Score& s) {
        say(fmt::format("epoch {}: loss {:.6f}, top-1 {:.2f} %, top-5 {:.2f} %, {:.0f} images/s",
                        number, e.loss, 100 * s.top1, 100 * s.top5, e.images_per_s));
        if (!speaks_ || options_.log.empty()) return;
        std::ofstream log(options_.log, std::ios::app);
        log << fmt::format("{},{:.17g},{:.17g},{:.17g},{:.6g}\n", number, e.loss, s.top1, s.top5,
                           e.images_per_s);
        if (!log.flush()) throw std::runtime_error(fmt::format("cannot write {}", options_.log));
    }
    void end(const imagenet_like::Score& s, double images_per_s, std::optional<double> alone) {
        std::string speed;
        if (images_per_s > 0) speed = fmt::format(", {:.0f} images/s", images_per_s);
        if (images_per_s > 0 && alone)
            speed += fmt::format(" (one process alone {:.0f}: scaling efficiency {:.1f} %)", *alone,
                                 100 * images_per_s / (ranks_ * *alone));
        say(fmt::format("imagenet_like: ranks {}, devices {}, top-1 {:.2f} %, top-5 {:.2f} %{}",
                        ranks_, options_.training.devices, 100 * s.top1, 100 * s.top5, speed));
    }

private:
    bool speaks_;
    int ranks_;
    const Options& options_;
    Progress progress_;
};

// Returns the images per second of rank 0 with its share of the batch, while the other ranks wait.
double measure_alone(const Options& o, const Sets& sets, tutti::Communicator& comm) {
    double images_per_s = 0;
    if (comm.rank() == 0) {
        imagenet_like::TrainingOptions own = o.training;
        own.batch = std::max<std::size_t>(1, own.batch / static_cast<std::size_t>(comm.size()));
        Training alone(nullptr, sets.training, sets.test, own);
        images_per_s = alone.measure(efficiency_steps);
    }
    comm.barrier();
    return images_per_s;
}

int restore(Training& training, tutti::EpochCheckpoints& folder, Report& report) {
    const int done = folder.restore([&](const std::string& path) { training.load(path); });
    for (const tutti::Error& refused : folder.refused())
        report.say(fmt::format("not used: {}", refused.what()));
    if (done > 0) report.say(fmt::format("going on from {}", folder.path(done)));
    return done;
}

// Sets the options that follow from several others.
void settle(Options& o, int ranks) {
    imagenet_like::TrainingOptions& t = o.training;
    if (o.batch_per_device > 0)
        t.batch = o.batch_per_device * static_cast<std::size_t>(ranks) *
                  static_cast<std::size_t>(t.devices);
    t.dag = o.execution == "dag";
    t.schedule.batch = t.batch;
    t.schedule.epochs = o.epochs;
}

int run(Options& o) {
    tutti::Communicator comm;
    settle(o, comm.size());
    const Sets sets{{o.data, "train"}, {o.data, "test"}};
    Report report(o, comm);
    std::optional<double> alone;
    if (o.efficiency) alone = measure_alone(o, sets, comm);
    Training training(&comm, sets.training, sets.test, o.training);
    tutti::EpochCheckpoints folder(o.checkpoints, &comm);
    int epoch = o.checkpoints.empty() ? 0 : restore(training, folder, report);
    const int end =
        o.epochs_per_gang > 0 ? std::min(o.epochs, epoch + o.epochs_per_gang) : o.epochs;
    imagenet_like::Score score;
    if (epoch >= end) score = training.score();
    double seconds = 0, images = 0;
    for (; epoch < end; ++epoch) {
        const imagenet_like::Epoch done = training.run_epoch(epoch, report.watch(epoch));
        score = training.score();
        images += static_cast<double>(sets.training.size());
        seconds += static_cast<double>(sets.training.size()) / done.images_per_s;
        if (!o.checkpoints.empty())
            folder.save(epoch + 1,
                        [&](const std::string& path) { training.save(path, epoch + 1); });
        report.epoch(epoch + 1, done, score);
    }
    if (!training.in_step())
        throw std::runtime_error(
            fmt::format("rank {}: the replicas' parameters differ", comm.rank()));
    if (epoch < o.epochs) return 0;  // the next gang continues
    report.end(score, seconds > 0 ? images / seconds : 0, alone);
    if (score.top1 >= o.min_top1) return 0;
    report.say(fmt::format("imagenet_like: top-1 is below {:g} %", 100 * o.min_top1));
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Options o;
        CLI::App app("Trains a small convolutional net from record files; run it with tutti-run.",
                     "imagenet_like");
        add_options(app, o);
        CLI11_PARSE(app, argc, argv);
        return run(o);
    } catch (const std::exception& error) {
        fmt::print(stderr, "imagenet_like: {}\n", error.what());
        return 1;
    }
}
