// The options with the environment and the defaults put in.
#pragma once

#include "trainer/base/result.h"
#include "tutti/trainer.h"

namespace tutti::trainer {

struct TrainerSettings {
    bool dag = false;
    int threads = 0;  // 0: default_threads
    bool scale_learning_rate = false;
    int micro_batches = 1;
    bool uneven = false;
    bool fixed_order = false;
    std::size_t bucket_bytes = 0;
    std::size_t first_bucket_bytes = 0;
    int max_in_flight = 0;
    int rings = 0;  // 0: two, if the communicator has them
    bool computed_mean = false;
    int computed_every = 1;
    int local_steps = 0;
    bool share_memory = false;
    bool check = false;
    bool external = false;
    tutti_trainer* parameters_of = nullptr;

    /// False with LocalSGD, where the replicas' models differ between averages.
    bool synchronous() const { return local_steps == 0; }
    /// The weight of one replica's micro-batch in a mean over all micro-batches of one update.
    double mean_scale(int replicas) const {
        const int together = synchronous() ? replicas : 1;
        return 1.0 / (static_cast<double>(together) * micro_batches);
    }
};

/// INVALID names an option or variable with a bad value.
Result<TrainerSettings> settings_of(const tutti_trainer_options* options);

/// One line an option on which the collectives or their sums depend: the same text on all ranks.
std::string signature(const TrainerSettings& settings);

/// One thread for each device and one more. If the devices are cores, at most this rank's share of
/// the host's cores; a rank that is bound to some cores has all of those.
int default_threads(int devices, bool devices_are_cores, int ranks_of_host);

}  // namespace tutti::trainer
