// This rank's part of a fully-connected layer with softmax cross-entropy, sharded by class.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/base/result.h"
#include "tutti/trainer_sharded.h"

namespace tutti::trainer::sharded {

struct ClassRange {
    int64_t first = 0;
    int64_t count = 0;
};
Result<ClassRange> range_of(int64_t classes, int shards, int shard);

/// Memory from the program's alloc, kept between steps and only grown: batches are alike.
class Scratch {
public:
    explicit Scratch(const tutti_fc_math& math) : math_(math) {}
    Scratch(const Scratch&) = delete;
    ~Scratch() {
        if (data_) math_.free(math_.user, data_);
    }
    Result<float*> get(std::size_t count);

private:
    const tutti_fc_math& math_;
    void* data_ = nullptr;
    std::size_t count_ = 0;
};

}  // namespace tutti::trainer::sharded

struct tutti_sharded_fc {
public:
    tutti_sharded_fc(const tutti_sharded_fc_spec& spec, const tutti_fc_math& math,
                     tutti::trainer::sharded::ClassRange range);

    tutti::trainer::Result<double> forward(const float* x, const int64_t* labels, std::size_t batch,
                                           const float* weight, const float* bias);
    tutti::trainer::Result<> backward(double loss_scale, const float* weight, float* dx,
                                      float* dweight, float* dbias);

private:
    using Done = tutti::trainer::Result<>;
    Done gather(const float* x, const int64_t* labels, std::size_t batch);
    /// Goes through the host if libtutti cannot access this memory.
    Done gather_features(const float* x, float* features, std::vector<std::size_t> counts);
    Done scatter_gradients(const float* all_dx, float* dx, std::vector<std::size_t> counts);
    Done check_labels() const;
    Done compute_logits(const float* weight, const float* bias);
    /// Softmax's numerators, their sums over all shards, and each sample's own logit.
    Done exponentiate();
    double mean_loss();
    Done check_math(tutti_status status, const char* what) const;

    const tutti_sharded_fc_spec spec_;
    const tutti_fc_math math_;
    const tutti::trainer::sharded::ClassRange range_;
    const int ranks_, rank_;
    tutti::trainer::sharded::Scratch features_, logits_, all_dx_;
    std::vector<std::size_t> batches_;  // of each rank
    std::size_t samples_ = 0;           // of all
    std::vector<int64_t> labels_, columns_;
    std::vector<float> max_, own_, all_;  // own_, all_: rows of x or dx on the host
    std::vector<double> sums_;            // of all samples, then their own logits
    double counted_ = 0;
    bool forwarded_ = false;
};
