#include "training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace imagenet_like {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<int64_t> sizes_of(const Step& step) {
    std::vector<int64_t> sizes;
    for (const Batch& batch : step) sizes.push_back(static_cast<int64_t>(batch.labels.size()));
    return sizes;
}

int64_t capacity_of(std::size_t batch, std::size_t replicas) {
    return static_cast<int64_t>((batch - 1) / replicas + 1);
}

}  // namespace

Training::Training(tutti::Communicator* comm, const RecordSet& training, const RecordSet& test,
                   const TrainingOptions& options)
    : comm_(comm),
      training_(training),
      test_(test),
      options_(options),
      trainer_(training_spec()),
      tester_(testing_spec()) {
    initialise(trainer_, options_.seed);
    trainer_.init_sync();
}

std::size_t Training::replicas() const {
    return static_cast<std::size_t>(comm_ == nullptr ? 1 : comm_->size()) *
           static_cast<std::size_t>(options_.devices);
}

tutti::TrainerSpec Training::training_spec() {
    tutti::TrainerSpec spec;
    spec.devices = options_.devices;
    spec.comm = comm_ == nullptr ? nullptr : comm_->get();
    spec.options.uneven = 1;  // the last batch is smaller
    spec.options.execution = options_.dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
    spec.options.optimize_gradient_memory = 1;
    const int64_t capacity = capacity_of(options_.batch, replicas());
    spec.input = [this, capacity](tutti::Model& m) { build_input(m, current_, capacity); };
    spec.forward = [](tutti::Model& m, double) { return build_forward(m, true); };
    spec.update = [this](tutti::Model& m, double lr_scale) {
        build_update(m, options_.momentum, options_.decay, lr_scale);
    };
    return spec;
}

// Every rank tests its own images by itself, so the specification has no communicator.
tutti::TrainerSpec Training::testing_spec() {
    tutti::TrainerSpec spec;
    spec.devices = options_.devices;
    spec.options.uneven = 1;
    spec.options.parameters_of = trainer_.get();
    const int64_t capacity = capacity_of(options_.batch, replicas());
    spec.input = [this, capacity](tutti::Model& m) { build_input(m, current_, capacity); };
    spec.forward = [](tutti::Model& m, double) { return build_forward(m, false); };
    return spec;
}

ReaderOptions Training::reader_options() const {
    const auto devices = static_cast<std::size_t>(options_.devices);
    return {.side = static_cast<std::size_t>(side),
            .classes = static_cast<std::size_t>(classes),
            .batch = options_.batch,
            .replicas = replicas(),
            .first = static_cast<std::size_t>(rank()) * devices,
            .devices = devices,
            .seed = options_.seed};
}

void Training::read_from(int epoch) {
    ReaderOptions options = reader_options();
    options.begin_epoch = static_cast<uint64_t>(epoch);
    // The reader's thread reads the next epoch while this process tests and saves this one.
    options.end_epoch =
        std::max(options.begin_epoch + 1, static_cast<uint64_t>(options_.schedule.epochs));
    reader_.reset();
    reader_ = std::make_unique<Reader>(training_, options);
    next_epoch_ = epoch;
}

// Runs one step. Returns this rank's part of the sum of the losses.
double Training::step(double epoch) {
    current_ = &reader_->next();
    const std::vector<double> rate{options_.schedule.at(epoch)};
    for (int d = 0; d < options_.devices; ++d) trainer_.write(d, "learning_rate", rate);
    const std::vector<int64_t> samples = sizes_of(*current_);
    const auto total = static_cast<double>(trainer_.step(samples));
    double loss = 0;
    for (int d = 0; d < options_.devices; ++d)
        if (samples[static_cast<std::size_t>(d)] > 0) loss += trainer_.read<double>(d, "loss")[0];
    return loss * total;
}

Epoch Training::run_epoch(int epoch, const Watch& watch) {
    if (!reader_ || next_epoch_ != epoch) read_from(epoch);
    const std::size_t steps = reader_->steps_per_epoch();
    std::array<double, 1> loss{};
    std::vector<int32_t> seen(training_.size());
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < steps; ++i) {
        loss[0] += step(epoch + static_cast<double>(i) / static_cast<double>(steps));
        for (const Batch& batch : *current_)
            for (const uint32_t entry : batch.entries) ++seen[entry];
        const auto images = std::min((i + 1) * options_.batch, training_.size());
        watch(i + 1, steps, static_cast<double>(images) / seconds_since(begin));
    }
    const double seconds = seconds_since(begin);
    next_epoch_ = epoch + 1;
    add_up(loss);
    check_reading(epoch, std::move(seen));
    const auto images = static_cast<double>(training_.size());
    return {.loss = loss[0] / images, .images_per_s = images / seconds};
}

double Training::measure(int steps) {
    read_from(0);
    step(0);  // the first step touches memory and opens files
    double images = 0;
    const Clock::time_point begin = Clock::now();
    for (int i = 1; i <= steps; ++i) {
        if (static_cast<std::size_t>(i) % reader_->steps_per_epoch() == 0) read_from(0);
        step(0);
        for (const Batch& batch : *current_) images += static_cast<double>(batch.labels.size());
    }
    return images / seconds_since(begin);
}

void Training::check_reading(int epoch, std::vector<int32_t> seen) {
    add_up(seen);
    const auto wrong = std::find_if(seen.begin(), seen.end(), [](int32_t n) { return n != 1; });
    if (wrong != seen.end())
        throw std::runtime_error(fmt::format(
            "{} was read {} times in epoch {}; do all ranks have the same files and options?",
            training_.name_of(static_cast<std::size_t>(wrong - seen.begin())), *wrong, epoch + 1));
}

Score Training::score() {
    ReaderOptions options = reader_options();
    options.training = false;
    Reader reader(test_, options);
    std::array<double, 2> correct{};
    for (std::size_t i = 0; i < reader.steps_per_epoch(); ++i) {
        current_ = &reader.next();
        const std::vector<int64_t> samples = sizes_of(*current_);
        if (tester_.step(samples) == 0) continue;  // none for this rank
        for (int d = 0; d < options_.devices; ++d) {
            if (samples[static_cast<std::size_t>(d)] == 0) continue;
            const std::vector<double> own = tester_.read<double>(d, "correct");
            correct[0] += own[0];
            correct[1] += own[1];
        }
    }
    add_up(correct);
    const auto images = static_cast<double>(test_.size());
    return {.top1 = correct[0] / images, .top5 = correct[1] / images};
}

namespace {

// Every value that must be the same on all replicas, as bytes.
std::string values_of(const tutti::Trainer& trainer, int device) {
    std::string all;
    for (const tutti_buffer_info& value : trainer.params(fmt::format("device_{}", device)))
        all.append(static_cast<const char*>(value.data), value.bytes);
    return all;
}

}  // namespace

bool Training::in_step() {
    const std::string first = values_of(trainer_, 0);
    for (int d = 1; d < options_.devices; ++d)
        if (values_of(trainer_, d) != first) return false;
    const uint64_t hash = std::hash<std::string_view>{}(first);
    std::array<uint64_t, 1> smallest{hash}, largest{hash};
    add_up(smallest, TUTTI_MIN);
    add_up(largest, TUTTI_MAX);
    return smallest == largest;
}

// The settings that decide an epoch's steps: a run with others must not go on from a checkpoint.
std::string Training::identity() const {
    return fmt::format("batch {}, seed {}, {} images", options_.batch, options_.seed,
                       training_.size());
}

void Training::save(const std::string& path, int epochs_done) {
    tutti::Checkpoint list;
    trainer_.add_to(list);
    list.set_text("epoch", std::to_string(epochs_done)).set_text("run", identity());
    list.save(path, comm_ == nullptr ? nullptr : comm_->get());
}

void Training::load(const std::string& path) {
    tutti::Checkpoint list;
    trainer_.add_to(list);
    list.load(path, comm_ == nullptr ? nullptr : comm_->get());
    const std::string run = list.text("run").value_or("another program");
    if (run != identity())
        throw std::runtime_error(
            fmt::format("{} is of a run with {}, this one has {}: give the same options, or "
                        "another folder",
                        path, run, identity()));
    trainer_.sync();  // the layer's own counter takes the loaded value
}

}  // namespace imagenet_like
