// The data-parallel part: assigns images to devices, and measures. The trainer layer reduces
// gradients.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net.h"
#include "reader.h"
#include "schedule.h"
#include "tutti/checkpoint.hpp"
#include "tutti/tutti.hpp"

namespace imagenet_like {

struct TrainingOptions {
    int devices = 1;         // of this process
    std::size_t batch = 64;  // of all replicas
    Schedule schedule;
    double momentum = 0.9;
    double decay = 5e-4;
    uint64_t seed = 1;
    bool dag = false;
};

/// Over all replicas, the same on every rank.
struct Epoch {
    double loss = 0;  // the mean over the images, each before its step
    double images_per_s = 0;
};
struct Score {
    double top1 = 0, top5 = 0;
};

class Training {
public:
    /// With comm == nullptr this process trains alone. All ranks get rank 0's initial parameters.
    /// The sets must outlive the training.
    Training(tutti::Communicator* comm, const RecordSet& training, const RecordSet& test,
             const TrainingOptions& options);

    Training(const Training&) = delete;  // the trainers' builders point here

    /// Receives an epoch's progress: steps done and in all, images a second.
    using Watch = std::function<void(std::size_t, std::size_t, double)>;
    /// Epochs count from 0 and follow one another. Throws std::runtime_error if the ranks did not
    /// read every image exactly once.
    Epoch run_epoch(int epoch, const Watch& watch);
    /// Returns the images per second of this number of steps. It changes the parameters: the net is
    /// of no use for anything else afterwards.
    double measure(int steps);
    /// Tests all images of the test part, with the running statistics.
    Score score();
    /// Whether all replicas hold the same parameters and statistics, bit for bit.
    bool in_step();

    /// Save and load all state from which a run continues. load() refuses a checkpoint of a run
    /// with another batch, seed or number of images.
    void save(const std::string& path, int epochs_done);
    void load(const std::string& path);

private:
    tutti::TrainerSpec training_spec();
    tutti::TrainerSpec testing_spec();
    ReaderOptions reader_options() const;
    void read_from(int epoch);
    double step(double epoch);
    void check_reading(int epoch, std::vector<int32_t> seen);
    std::string identity() const;
    int rank() const { return comm_ == nullptr ? 0 : comm_->rank(); }
    std::size_t replicas() const;
    template <typename B>
    void add_up(B&& values, tutti_op op = TUTTI_SUM) {
        if (comm_ != nullptr) comm_->allreduce(values, op);
    }

    tutti::Communicator* comm_;
    const RecordSet &training_, &test_;
    TrainingOptions options_;
    const Step* current_ = nullptr;
    tutti::Trainer trainer_, tester_;
    std::unique_ptr<Reader> reader_;
    int next_epoch_ = 0;
};

}  // namespace imagenet_like
