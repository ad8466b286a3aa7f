// An embedding net and a classifier that is sharded over the ranks, trained in step by the trainer
// layer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../digits/dataset.h"
#include "tutti/trainer.hpp"
#include "tutti/trainer_sharded.h"
#include "tutti/tutti.hpp"

namespace face_like {

inline constexpr std::size_t hidden = 64;
inline constexpr std::size_t embedding = 32;

using Floats = std::vector<float>;

struct Batch {
    Floats x;  // samples × pixels
    std::vector<int64_t> labels;

    std::size_t samples() const { return labels.size(); }
};
Batch to_batch(const std::vector<digits::Image>& images, const std::vector<std::size_t>& picked);

struct NetOptions {
    float rate = 0.1F;
    std::size_t capacity = 0;  // the most samples of a rank's batch
    bool dag = false;
};

class Net {
public:
    Net(tutti::Communicator& comm, const NetOptions& options);
    Net(const Net&) = delete;

    /// Runs one step with this rank's samples. Returns the loss over all ranks' samples.
    double train(const Batch& batch);
    /// The share of the samples (the same on every rank) that the net recognises.
    double accuracy(const Batch& batch);
    /// Collective. Each shard is stored once.
    void save(const std::string& path, int epoch);
    /// Loads a checkpoint. Returns the number of epochs that it has completed.
    int load(const std::string& path);

private:
    struct Destroy {
        void operator()(tutti_sharded_fc* layer) const { tutti_sharded_fc_destroy(layer); }
    };

    tutti::TrainerSpec spec();
    void build_input(tutti::Model& m);
    tutti::Losses build_forward(tutti::Model& m);
    void build_update(tutti::Model& m) const;
    tutti_buffer embed(tutti::Model& m, tutti_buffer x);
    tutti_buffer classify(tutti::Model& m, tutti_buffer embedded, tutti_buffer labels);
    void initialise();

    tutti::Communicator& comm_;
    NetOptions options_;
    int64_t first_ = 0, own_ = 0;  // this rank's classes
    std::unique_ptr<tutti_sharded_fc, Destroy> fc_;
    const Batch* batch_ = nullptr;  // the batch of the current step
    std::optional<tutti::Trainer> trainer_;
};

}  // namespace face_like
