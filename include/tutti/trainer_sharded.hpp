/**
 * @file trainer_sharded.hpp
 * @brief A thin layer over trainer_sharded.h for C++20: header only, errors are tutti::Error.
 *
 *     tutti::ShardedLinear fc({.comm = comm.get(), .classes = 10'000'000, .features = 128,
 *                              .math = &math});
 *     const double loss = fc.forward(x, labels, weight);
 *     fc.backward(1, weight, dx, dweight);
 */
#ifndef TUTTI_TRAINER_SHARDED_HPP
#define TUTTI_TRAINER_SHARDED_HPP

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/buffers.hpp"
#include "tutti/handles.hpp"
#include "tutti/trainer_errors.hpp"
#include "tutti/trainer_sharded.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// Classes first to first + count - 1.
struct ShardRange {
    int64_t first = 0;
    int64_t count = 0;
};
inline ShardRange shard_range(int64_t classes, int shards, int shard) {
    ShardRange range;
    detail::check_trainer(tutti_shard_range(classes, shards, shard, &range.first, &range.count));
    return range;
}
/// Labels mapped to the shard's own classes (tutti_shard_index).
inline std::vector<int64_t> shard_index(std::span<const int64_t> labels, int64_t classes,
                                        int shards, int shard, int64_t ignore) {
    std::vector<int64_t> out(labels.size());
    detail::check_trainer(tutti_shard_index(labels.data(), labels.size(), classes, shards, shard,
                                            ignore, out.data()));
    return out;
}

/// This rank's part of a fully-connected layer with softmax cross-entropy. Buffers are float32 of
/// the kind of memory that the arithmetic's alloc gives. Destroy it before its communicator. Move
/// only.
class ShardedLinear {
public:
    struct Spec {
        tutti_comm* comm = nullptr;  ///< null: one shard
        int64_t classes = 0;
        std::size_t features = 0;
        int64_t ignore = -1;
        const tutti_fc_math* math = nullptr;  ///< complete: tutti_fc_math_host()'s with a gemm
    };
    explicit ShardedLinear(const Spec& spec)
        : features_(spec.features),
          own_(shard_range(spec.classes, spec.comm ? tutti_comm_size(spec.comm) : 1,
                           spec.comm ? tutti_comm_rank(spec.comm) : 0)) {
        tutti_sharded_fc_spec c = TUTTI_SHARDED_FC_SPEC_INIT;
        c.comm = spec.comm;
        c.classes = spec.classes;
        c.features = spec.features;
        c.ignore = spec.ignore;
        c.math = spec.math;
        tutti_sharded_fc* made = nullptr;
        detail::check_trainer(tutti_sharded_fc_create(&c, &made));
        handle_.reset(made);
    }
    /// The classes of this rank: the rows of its weight.
    ShardRange own() const { return own_; }

    /// Collective: the mean loss of all ranks' samples. x has a row for each label.
    double forward(std::span<const float> x, std::span<const int64_t> labels,
                   std::span<const float> weight, std::span<const float> bias = {}) {
        need("x", x.size(), labels.size() * features_);
        need("weight", weight.size(), weights());
        if (!bias.empty()) need("bias", bias.size(), static_cast<std::size_t>(own_.count));
        double loss = 0;
        detail::check_trainer(
            tutti_sharded_fc_forward(handle_.get(), x.data(), labels.data(), labels.size(),
                                     weight.data(), bias.empty() ? nullptr : bias.data(), &loss));
        batch_ = labels.size();
        return loss;
    }
    /// Collective, once after a forward: overwrites the gradients; do not reduce them.
    void backward(double loss_scale, std::span<const float> weight, std::span<float> dx,
                  std::span<float> dweight, std::span<float> dbias = {}) {
        need("weight", weight.size(), weights());
        need("dx", dx.size(), batch_ * features_);
        need("dweight", dweight.size(), weights());
        if (!dbias.empty()) need("dbias", dbias.size(), static_cast<std::size_t>(own_.count));
        detail::check_trainer(tutti_sharded_fc_backward(handle_.get(), loss_scale, weight.data(),
                                                        dx.data(), dweight.data(),
                                                        dbias.empty() ? nullptr : dbias.data()));
    }
    tutti_sharded_fc* get() const { return handle_.get(); }

private:
    std::size_t weights() const { return static_cast<std::size_t>(own_.count) * features_; }
    static void need(const char* what, std::size_t found, std::size_t wanted) {
        if (found != wanted)
            detail::refuse(std::string("sharded layer: ") + what + " has " + std::to_string(found) +
                               " elements, not " + std::to_string(wanted),
                           "pass " + std::to_string(wanted) + " elements");
    }
    std::size_t features_;
    std::size_t batch_ = 0;
    ShardRange own_;
    detail::Handle<tutti_sharded_fc, tutti_sharded_fc_destroy> handle_;
};

}  // namespace cxx
}  // namespace tutti

#endif
