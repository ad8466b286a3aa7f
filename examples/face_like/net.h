// An embedding net and a classifier that is sharded over the ranks, trained in step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../digits/dataset.h"
#include "tutti/checkpoint.hpp"
#include "tutti/trainer_sharded.h"
#include "tutti/tutti.hpp"

namespace face_like {

inline constexpr std::size_t hidden = 64;
inline constexpr std::size_t embedding = 32;

using Floats = std::vector<float>;

/// A weight, its gradient and its momentum.
struct Learnt {
    Floats value, gradient, momentum;
    explicit Learnt(std::size_t count) : value(count), gradient(count), momentum(count) {}
    void update(float rate);
};

struct Batch {
    Floats x;  // samples × pixels
    std::vector<int64_t> labels;
};
Batch to_batch(const std::vector<digits::Image>& images, const std::vector<std::size_t>& picked);

class Net {
public:
    explicit Net(tutti::Communicator& comm);
    ~Net();
    Net(const Net&) = delete;

    /// One step with this rank's samples; the loss over all ranks' samples.
    double train(const Batch& batch, float rate);
    /// The share of the samples (the same on every rank) that is recognised.
    double accuracy(const Batch& batch);
    /// Every rank; shards are stored once.
    void save(const std::string& path, int epoch);
    /// The epochs that the checkpoint has behind it.
    int load(const std::string& path);

private:
    void embed(const Batch& batch);
    void embed_backward(const Batch& batch);
    tutti::Checkpoint state();

    tutti::Communicator& comm_;
    int64_t first_ = 0, own_ = 0;  // this rank's classes
    Learnt weights1_, bias1_, weights2_;
    std::unique_ptr<Learnt> classes_;
    tutti_sharded_fc* fc_ = nullptr;
    Floats hidden_, embedded_, embedded_gradient_, hidden_gradient_;
};

}  // namespace face_like
