// The data-parallel part: assigns images to ranks and devices. The trainer layer reduces gradients.
#pragma once

#include "dataset.h"
#include "model.h"
#include "tutti/tutti.hpp"

namespace digits {

struct TrainingOptions {
    int devices = 1;         // of this process
    std::size_t batch = 64;  // over all ranks
    double rate = 0.05;
    double momentum = 0.9;
    uint64_t seed = 1;
    bool dag = false;
};

/// Averages and shares, the same on every rank.
struct Epoch {
    double loss = 0;  // over the epoch's batches, each before its step
    double training_accuracy = 0;
    double test_accuracy = 0;
};

class Training {
public:
    /// All ranks get rank 0's initial parameters.
    Training(tutti::Communicator& comm, Dataset dataset, const TrainingOptions& options);

    Epoch run_epoch();
    /// Whether all replicas hold the same parameters and statistics, bit for bit.
    bool in_step();
    /// Parameters and statistics of device 0.
    std::vector<double> values() const { return values_of(trainer_, 0); }

private:
    tutti::TrainerSpec training_spec();
    tutti::TrainerSpec testing_spec();
    /// Cuts images among replicas, sets this process's shares and returns their sizes.
    std::vector<int64_t> share_out(std::span<const Image* const> images);
    double train_batch(std::span<const Image* const> batch);
    double accuracy(std::span<const Image> images);
    std::size_t replicas() const;

    tutti::Communicator& comm_;
    Dataset dataset_;
    TrainingOptions options_;
    Shares shares_;
    tutti::Trainer trainer_;
    tutti::Trainer tester_;
    std::mt19937_64 order_random_;
    std::vector<const Image*> order_;
};

}  // namespace digits
