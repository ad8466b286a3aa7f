// The data-parallel part: who takes which images, and what is reduced.
#pragma once

#include "dataset.h"
#include "model.h"
#include "tutti/tutti.hpp"

namespace digits {

struct TrainingOptions {
    std::size_t batch = 64;  // over all ranks
    double rate = 0.05;
    double momentum = 0.9;
    uint64_t seed = 1;
};

/// Averages and shares, the same on every rank.
struct Epoch {
    double loss = 0;  // over the epoch's batches, each before its step
    double training_accuracy = 0;
    double test_accuracy = 0;
};

class Training {
public:
    /// Rank 0's initial parameters go to everyone.
    Training(tutti::Communicator& comm, Dataset dataset, const TrainingOptions& options);

    Epoch run_epoch();
    /// Whether all ranks hold the same parameters, bit for bit.
    bool in_step();

private:
    struct Share {
        std::size_t begin;
        std::size_t end;
    };
    Share share_of(std::size_t count) const;
    double train_batch(std::span<const Image* const> batch);
    double accuracy(std::span<const Image> images);

    tutti::Communicator& comm_;
    Dataset dataset_;
    TrainingOptions options_;
    Model model_;
    Optimizer optimizer_;
    std::mt19937_64 order_random_;
    std::vector<const Image*> order_;
    std::vector<double> sums_;  // the gradient, then the loss: one allreduce a batch
};

}  // namespace digits
