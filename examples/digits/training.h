// The data-parallel part: assigns images to ranks and devices. The trainer layer reduces gradients.
#pragma once

#include <array>

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
    bool recover = false;  // go on with the ranks that are left after a loss
};

/// Averages and shares, the same on every rank.
struct Epoch {
    double loss = 0;  // over the epoch's batches, each before its step, on the ranks that are left
    double training_accuracy = 0;
    double test_accuracy = 0;
    bool in_step = true;  // all replicas have the same parameters and statistics, bit for bit
    int waiting = 0;      // processes that want to join; counted only with recover
};

class Training {
public:
    /// All ranks get rank 0's parameters. A process that joins a training goes on with it.
    Training(const tutti::Communicator& comm, Dataset dataset, const TrainingOptions& options);

    /// The next epoch. Then processes that wait join, unless it is the last one.
    Epoch run_epoch(bool last);
    int epochs() const { return epochs_; }
    /// This rank among those that are left.
    int rank() const { return tutti_comm_rank(trainer_.comm()); }
    int size() const { return tutti_comm_size(trainer_.comm()); }
    /// Parameters and statistics of device 0.
    std::vector<double> values() const { return values_of(trainer_, 0); }

private:
    tutti::TrainerSpec training_spec(const tutti::Communicator& comm);
    tutti::TrainerSpec testing_spec();
    /// The images of a device if all of them are cut among the fewest replicas that may train.
    int64_t capacity(std::size_t images) const;
    /// Cuts images among the replicas, sets this process's shares and returns their sizes.
    const std::vector<int64_t>& share_out(std::span<const Image* const> images, int rank,
                                          int ranks);
    void train_batch(std::span<const Image* const> batch);
    /// The step of the batch. If a rank was lost before all others began it, this rank repeats what
    /// it has done since the last step.
    int64_t step(std::span<const Image* const> batch);
    void synchronise();
    std::size_t steps_of_epoch() const;
    void begin_epoch();
    int count_waiting();
    /// Ends the epoch, and takes in the processes that wait.
    Epoch finish_epoch();
    /// False: another rank was lost, so the epoch must be ended again.
    bool admit(int newcomers);
    /// Over the ranks: loss, accuracies and the comparison of the replicas.
    Epoch end_epoch();
    /// The same, again after each loss.
    Epoch end_epoch_in_any_case();
    double accuracy(std::span<const Image> images);
    bool in_step();

    Dataset dataset_;
    TrainingOptions options_;
    int first_ranks_;
    Shares shares_;
    std::vector<int64_t> samples_;              // of the shares
    std::span<const Image* const> batch_ = {};  // of the step that runs
    tutti::Trainer trainer_;
    tutti::Trainer tester_;
    std::mt19937_64 order_random_;
    std::vector<const Image*> order_;
    std::array<double, 2> losses_ = {};  // of this rank in this epoch: the sum, and the images
    std::array<double, 2> last_losses_ = {};
    int epochs_ = 0;  // begun
};

}  // namespace digits
