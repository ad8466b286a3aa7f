#include "training.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

namespace digits {
namespace {

template <typename T>
void combine(tutti_comm* comm, std::span<T> values, tutti_op op = TUTTI_SUM) {
    const tutti_status status =
        tutti_allreduce(comm, values.data(), values.data(), values.size(), tutti::dtype_of<T>, op);
    if (status != TUTTI_OK) throw tutti::Error(status, tutti_last_error_rank(), tutti_last_error());
}

}  // namespace

Training::Training(const tutti::Communicator& comm, Dataset dataset, const TrainingOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      first_ranks_(comm.size()),
      shares_(static_cast<std::size_t>(options.devices)),
      trainer_(training_spec(comm)),
      tester_(testing_spec()),
      order_random_(options.seed + 1) {
    for (const Image& image : dataset_.training) order_.push_back(&image);
    initialise(trainer_, options_.seed);
    synchronise();
    const auto steps = static_cast<std::size_t>(trainer_.read<int64_t>(0, "iteration")[0]);
    for (std::size_t done = 0; done < steps; done += steps_of_epoch()) begin_epoch();
}

void Training::synchronise() {
    for (;;) try {
            return trainer_.init_sync();
        } catch (const tutti::Error& error) {
            if (!options_.recover || error.status() != TUTTI_ERR_PEER_LOST) throw;
        }
}

int64_t Training::capacity(std::size_t images) const {
    const auto ranks = static_cast<std::size_t>(options_.recover ? 1 : first_ranks_);
    return static_cast<int64_t>((images - 1) / (ranks * shares_.size()) + 1);
}

tutti::TrainerSpec Training::training_spec(const tutti::Communicator& comm) {
    tutti::TrainerSpec spec;
    spec.devices = options_.devices;
    spec.comm = comm.get();
    spec.options.uneven = 1;  // the last batch is smaller
    spec.options.execution = options_.dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
    spec.input = [this](tutti::Model& m) { build_input(m, shares_, capacity(options_.batch)); };
    spec.forward = [](tutti::Model& m, double) { return build_forward(m, true); };
    spec.update = [this](tutti::Model& m, double lr_scale) {
        build_update(m, options_.rate, options_.momentum, lr_scale);
    };
    spec.recover = options_.recover;
    spec.resize = [this](int rank, int ranks) { return share_out(batch_, rank, ranks); };
    return spec;
}

// Every rank tests its own images by itself, so the specification has no communicator.
tutti::TrainerSpec Training::testing_spec() {
    const std::size_t images = std::max(dataset_.training.size(), dataset_.test.size());
    tutti::TrainerSpec spec;
    spec.devices = options_.devices;
    spec.options.uneven = 1;
    spec.options.parameters_of = trainer_.get();
    spec.input = [this, images](tutti::Model& m) { build_input(m, shares_, capacity(images)); };
    spec.forward = [](tutti::Model& m, double) { return build_forward(m, false); };
    return spec;
}

const std::vector<int64_t>& Training::share_out(std::span<const Image* const> images, int rank,
                                                int ranks) {
    const std::size_t replicas = static_cast<std::size_t>(ranks) * shares_.size();
    samples_.clear();
    for (std::size_t d = 0; d < shares_.size(); ++d) {
        const std::size_t replica = static_cast<std::size_t>(rank) * shares_.size() + d;
        const std::size_t begin = images.size() * replica / replicas;
        const std::size_t end = images.size() * (replica + 1) / replicas;
        shares_[d] = images.subspan(begin, end - begin);
        samples_.push_back(static_cast<int64_t>(end - begin));
    }
    return samples_;
}

int64_t Training::step(std::span<const Image* const> batch) {
    for (;;) {
        batch_ = batch;
        const std::vector<int64_t> samples = share_out(batch, rank(), size());
        try {
            return trainer_.step(samples);
        } catch (const tutti::Error& error) {
            // The trainer goes on, but some rank has not finished what is between the steps.
            if (!options_.recover || error.status() != TUTTI_ERR_PEER_LOST) throw;
            if (epochs_ == 1)
                synchronise();
            else
                finish_epoch();
        }
    }
}

// Trains one batch, and adds this rank's part to the sum of the losses.
void Training::train_batch(std::span<const Image* const> batch) {
    const auto total = static_cast<double>(step(batch));
    for (int d = 0; d < options_.devices; ++d) {
        const auto samples = static_cast<double>(samples_[static_cast<std::size_t>(d)]);
        if (samples > 0) losses_[0] += trainer_.read<double>(d, "loss")[0] * total;
        losses_[1] += samples;
    }
}

double Training::accuracy(std::span<const Image> images) {
    std::vector<const Image*> list;
    for (const Image& image : images) list.push_back(&image);
    const std::vector<int64_t>& samples = share_out(list, rank(), size());
    tester_.step(samples);
    double correct = 0;
    for (int d = 0; d < options_.devices; ++d)
        if (samples[static_cast<std::size_t>(d)] > 0)
            correct += tester_.read<double>(d, "correct")[0];
    combine(trainer_.comm(), std::span(&correct, 1));
    return correct / static_cast<double>(images.size());
}

// Rank 0 asks the store, for all.
int Training::count_waiting() {
    if (!options_.recover) return 0;
    int waiting = 0;
    if (rank() == 0 && tutti_comm_waiting(trainer_.comm(), &waiting) != TUTTI_OK) waiting = 0;
    combine(trainer_.comm(), std::span(&waiting, 1));
    return waiting;
}

bool Training::admit(int newcomers) {
    try {
        trainer_.admit(newcomers);
    } catch (const tutti::Error& error) {
        if (error.status() == TUTTI_ERR_PEER_LOST) return false;
        // The newcomer has ended, or is another program: the training goes on without it.
        const bool is_newcomers = error.status() == TUTTI_ERR_TIMEOUT ||
                                  error.status() == TUTTI_ERR_INVALID ||
                                  error.status() == TUTTI_ERR_ABORTED;
        if (!is_newcomers) throw;
    }
    return true;
}

Epoch Training::end_epoch() {
    std::array<double, 2> losses = last_losses_;
    combine<double>(trainer_.comm(), losses);
    return {.loss = losses[0] / losses[1],
            .training_accuracy = accuracy(dataset_.training),
            .test_accuracy = accuracy(dataset_.test),
            .in_step = in_step(),
            .waiting = count_waiting()};
}

Epoch Training::end_epoch_in_any_case() {
    for (;;) try {
            return end_epoch();
        } catch (const tutti::Error& error) {
            const bool is_loss =
                error.status() == TUTTI_ERR_PEER_LOST || error.status() == TUTTI_ERR_REVOKED;
            if (!options_.recover || !is_loss) throw;
            trainer_.recover();
        }
}

std::size_t Training::steps_of_epoch() const {
    return (order_.size() - 1) / options_.batch + 1;
}

void Training::begin_epoch() {
    shuffle(order_, order_random_);
    ++epochs_;
}

Epoch Training::run_epoch(bool last) {
    begin_epoch();
    losses_ = {};
    for (std::size_t at = 0; at < order_.size(); at += options_.batch) {
        const std::size_t count = std::min(options_.batch, order_.size() - at);
        train_batch(std::span(order_).subspan(at, count));
    }
    last_losses_ = losses_;
    return last ? end_epoch_in_any_case() : finish_epoch();
}

Epoch Training::finish_epoch() {
    for (;;) {
        const Epoch epoch = end_epoch_in_any_case();
        if (epoch.waiting == 0 || admit(epoch.waiting)) return epoch;
    }
}

bool Training::in_step() {
    const std::vector<double> first = values_of(trainer_, 0);
    bool equal = true;
    for (int d = 1; d < options_.devices; ++d) equal = equal && values_of(trainer_, d) == first;
    const auto bytes = std::as_bytes(std::span(first));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const uint64_t hash = std::hash<std::string_view>{}(text);
    // Without an early return: every rank makes the same calls.
    std::array<uint64_t, 2> least = {hash, ~hash};
    combine<uint64_t>(trainer_.comm(), least, TUTTI_MIN);
    return equal && least[0] == ~least[1];
}

}  // namespace digits
