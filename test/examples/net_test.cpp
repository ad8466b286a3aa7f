// examples/imagenet_like: its gradients, its replicas, its learning rate and its progress bar.
#include <cmath>
#include <cstdio>

#include "imagenet_fixture.h"
#include "imagenet_like/net.h"
#include "imagenet_like/progress.h"
#include "imagenet_like/training.h"
#include "support/catch.h"

using namespace imagenet_like;
using namespace tutti::test;

namespace {

constexpr std::size_t images = 6;

Step random_step() {
    Step step(1);
    for (std::size_t i = 0; i < images; ++i) {
        for (const uint8_t value : random_image(i).pixels)
            step[0].pixels.push_back(static_cast<float>(value) / 127.5F - 1);
        step[0].labels.push_back(static_cast<int64_t>(i));
    }
    return step;
}

/// One device that reads the same images in every step and does not move.
struct Still {
    Step step = random_step();
    const Step* current = &step;
    tutti::Trainer trainer{spec()};

    Still() {
        initialise(trainer, 3);
        trainer.init_sync();
    }
    Still(const Still&) = delete;

    tutti::TrainerSpec spec() {
        tutti::TrainerSpec spec;
        spec.options.uneven = 1;
        spec.input = [this](tutti::Model& m) { build_input(m, current, images); };
        spec.forward = [](tutti::Model& m, double) { return build_forward(m, true); };
        spec.update = [](tutti::Model& m, double lr_scale) { build_update(m, 0, 0, lr_scale); };
        return spec;
    }
    double loss() {
        trainer.step(std::vector<int64_t>{images});
        return trainer.read<double>(0, "loss")[0];
    }
};

/// The loss of one epoch of training on that many devices.
double loss_of(int devices, const RecordSet& set, bool dag) {
    TrainingOptions options{.devices = devices, .batch = 32, .dag = dag};
    options.schedule.batch = options.batch;
    Training training(nullptr, set, set, options);
    const double loss = training.run_epoch(0, [](std::size_t, std::size_t, double) {}).loss;
    if (!training.in_step()) throw std::runtime_error("the devices' parameters differ");
    const Score score = training.score();
    if (score.top1 > score.top5 || score.top5 > 1) throw std::runtime_error("no score");
    return loss;
}

std::string written(Progress::When when) {
    std::FILE* file = std::tmpfile();
    {
        Progress progress(when, file);
        progress.show("epoch 1", 1, 2, 10);
        progress.show("epoch 1", 2, 2, 20);
    }
    std::rewind(file);
    std::string text(1000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
}

}  // namespace

TEST_CASE("imagenet_like: gradients are those of the loss") {
    Still still;
    still.loss();
    for (const std::string name : {"conv1/w", "conv2/w", "conv3/w", "norm1/gamma", "norm2/beta",
                                   "norm3/gamma", "fc/w", "fc/b"}) {
        const std::vector<float> values = still.trainer.read<float>(0, name);
        const std::vector<float> gradient = still.trainer.read<float>(0, name + "_grad");
        for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 5) {
            INFO(name << "[" << i << "]");
            constexpr float h = 2e-3F;
            std::vector<float> moved = values;
            moved[i] = values[i] + h;
            still.trainer.write(0, name, moved);
            const double above = still.loss();
            moved[i] = values[i] - h;
            still.trainer.write(0, name, moved);
            const double below = still.loss();
            still.trainer.write(0, name, values);
            const double slope = (above - below) / (2 * h);
            REQUIRE(std::fabs(slope - gradient[i]) < 3e-3 + 0.03 * std::fabs(slope));
        }
    }
}

TEST_CASE("imagenet_like: 1, 2 and 3 devices learn the same from the same global batch") {
    const Folder folder;
    pack_random(folder, {150});
    const RecordSet set(folder.file(""), "train");
    const double one = loss_of(1, set, false);
    REQUIRE(std::fabs(loss_of(2, set, false) - one) < 1e-4);
    REQUIRE(std::fabs(loss_of(3, set, true) - one) < 1e-4);
}

TEST_CASE("imagenet_like: a checkpoint of another run is refused") {
    const Folder folder;
    pack_random(folder, {20});
    const RecordSet set(folder.file(""), "train");
    Training one(nullptr, set, set, {.batch = 8}), other(nullptr, set, set, {.batch = 9});
    one.save(folder.file("x"), 1);
    one.load(folder.file("x"));
    std::string refusal;
    try {
        other.load(folder.file("x"));
    } catch (const std::runtime_error& error) {
        refusal = error.what();
    }
    REQUIRE(refusal.find("batch 8, seed 1, 20 images") != std::string::npos);
}

TEST_CASE("imagenet_like: the rate rises to a peak that grows with the batch, then falls") {
    const Schedule s{.rate = 0.2, .batch = 256, .warmup_epochs = 2, .epochs = 10};
    REQUIRE(s.peak() == 0.8);
    REQUIRE(std::fabs(s.at(0) - 0.08) < 1e-12);
    REQUIRE(std::fabs(s.at(1) - 0.44) < 1e-12);
    REQUIRE(s.at(2) == 0.8);
    REQUIRE(std::fabs(s.at(6) - 0.4) < 1e-12);
    REQUIRE(std::fabs(s.at(10)) < 1e-12);
    const Schedule cold{.rate = 0.2, .batch = 64, .warmup_epochs = 0, .epochs = 10};
    REQUIRE(cold.at(0) == cold.peak());
}

TEST_CASE("imagenet_like: the progress bar is for terminals") {
    REQUIRE(written(Progress::When::automatic).empty());
    REQUIRE(written(Progress::When::never).empty());
    const std::string bar = written(Progress::When::always);
    REQUIRE(bar.find("] 2/2 20 images/s") != std::string::npos);
    REQUIRE(bar.find('\n') == std::string::npos);
    REQUIRE(bar.back() == '\r');
}
