#include "training.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

namespace digits {

Training::Training(tutti::Communicator& comm, Dataset dataset, const TrainingOptions& options)
    : comm_(comm),
      dataset_(std::move(dataset)),
      options_(options),
      shares_(static_cast<std::size_t>(options.devices)),
      trainer_(training_spec()),
      tester_(testing_spec()),
      order_random_(options.seed + 1) {
    for (const Image& image : dataset_.training) order_.push_back(&image);
    initialise(trainer_, options_.seed);
    trainer_.init_sync();
}

std::size_t Training::replicas() const {
    return static_cast<std::size_t>(comm_.size()) * shares_.size();
}

tutti::TrainerSpec Training::training_spec() {
    const auto capacity = static_cast<int64_t>((options_.batch - 1) / replicas() + 1);
    tutti::TrainerSpec spec;
    spec.devices = options_.devices;
    spec.comm = comm_.get();
    spec.options.uneven = 1;  // the last batch is smaller
    spec.options.execution = options_.dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
    spec.input = [this, capacity](tutti::Model& m) { build_input(m, shares_, capacity); };
    spec.forward = [](tutti::Model& m, double) { return build_forward(m, true); };
    spec.update = [this](tutti::Model& m, double lr_scale) {
        build_update(m, options_.rate, options_.momentum, lr_scale);
    };
    return spec;
}

// Every rank tests its own images by itself, so the specification has no communicator.
tutti::TrainerSpec Training::testing_spec() {
    const std::size_t images = std::max(dataset_.training.size(), dataset_.test.size());
    const auto capacity = static_cast<int64_t>((images - 1) / replicas() + 1);
    tutti::TrainerSpec spec;
    spec.devices = options_.devices;
    spec.options.uneven = 1;
    spec.options.parameters_of = trainer_.get();
    spec.input = [this, capacity](tutti::Model& m) { build_input(m, shares_, capacity); };
    spec.forward = [](tutti::Model& m, double) { return build_forward(m, false); };
    return spec;
}

std::vector<int64_t> Training::share_out(std::span<const Image* const> images) {
    std::vector<int64_t> sizes;
    for (std::size_t d = 0; d < shares_.size(); ++d) {
        const std::size_t replica = static_cast<std::size_t>(comm_.rank()) * shares_.size() + d;
        const std::size_t begin = images.size() * replica / replicas();
        const std::size_t end = images.size() * (replica + 1) / replicas();
        shares_[d] = images.subspan(begin, end - begin);
        sizes.push_back(static_cast<int64_t>(end - begin));
    }
    return sizes;
}

// Trains one batch. Returns this rank's part of the sum of the losses.
double Training::train_batch(std::span<const Image* const> batch) {
    const std::vector<int64_t> samples = share_out(batch);
    const auto total = static_cast<double>(trainer_.step(samples));
    double loss = 0;
    for (int d = 0; d < options_.devices; ++d)
        if (samples[static_cast<std::size_t>(d)] > 0) loss += trainer_.read<double>(d, "loss")[0];
    return loss * total;
}

double Training::accuracy(std::span<const Image> images) {
    std::vector<const Image*> list;
    for (const Image& image : images) list.push_back(&image);
    const std::vector<int64_t> samples = share_out(list);
    tester_.step(samples);
    std::array<double, 1> correct{};
    for (int d = 0; d < options_.devices; ++d)
        if (samples[static_cast<std::size_t>(d)] > 0)
            correct[0] += tester_.read<double>(d, "correct")[0];
    comm_.allreduce(correct);
    return correct[0] / static_cast<double>(images.size());
}

Epoch Training::run_epoch() {
    shuffle(order_, order_random_);
    std::array<double, 1> loss{};
    for (std::size_t at = 0; at < order_.size(); at += options_.batch) {
        const std::size_t count = std::min(options_.batch, order_.size() - at);
        loss[0] += train_batch(std::span(order_).subspan(at, count));
    }
    comm_.allreduce(loss);
    return {.loss = loss[0] / static_cast<double>(order_.size()),
            .training_accuracy = accuracy(dataset_.training),
            .test_accuracy = accuracy(dataset_.test)};
}

bool Training::in_step() {
    const std::vector<double> first = values_of(trainer_, 0);
    for (int d = 1; d < options_.devices; ++d)
        if (values_of(trainer_, d) != first) return false;
    const auto bytes = std::as_bytes(std::span(first));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const uint64_t hash = std::hash<std::string_view>{}(text);
    std::array<uint64_t, 1> smallest{hash};
    std::array<uint64_t, 1> largest{hash};
    comm_.allreduce(smallest, TUTTI_MIN);
    comm_.allreduce(largest, TUTTI_MAX);
    return smallest == largest;
}

}  // namespace digits
