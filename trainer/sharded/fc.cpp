#include "trainer/sharded/fc.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using tutti::trainer::fail;
using tutti::trainer::from_call;
using tutti::trainer::Result;
using tutti::trainer::run_within;
using tutti::trainer::sharded::ClassRange;

namespace tutti::trainer::sharded {

Result<ClassRange> range_of(int64_t classes, int shards, int shard) {
    if (classes < 1 || shards < 1 || shard < 0 || shard >= shards)
        return fail(TUTTI_ERR_INVALID, "sharded: no shard {} in {} shards of {} classes", shard,
                    shards, classes)
            .advice("pass 1 or more classes and shards, and a shard from 0 to shards - 1");
    const int64_t each = classes / shards + (classes % shards != 0 ? 1 : 0);
    const int64_t first = std::min(classes, each * shard);
    return ClassRange{first, std::min(each, classes - first)};
}

Result<float*> Scratch::get(std::size_t count) {
    if (count > count_) {
        if (data_) math_.free(math_.user, data_);
        count_ = 0;
        data_ = math_.alloc(math_.user, count * sizeof(float));
        if (!data_)
            return fail(TUTTI_ERR_NO_MEMORY, "sharded_fc: no memory for {} elements", count)
                .advice("use a smaller batch or more ranks, or look at the function math.alloc");
        count_ = count;
    }
    return static_cast<float*>(data_);
}

}  // namespace tutti::trainer::sharded

tutti_sharded_fc::tutti_sharded_fc(const tutti_sharded_fc_spec& spec, const tutti_fc_math& math,
                                   ClassRange range)
    : spec_(spec),
      math_(math),
      range_(range),
      ranks_(spec.comm ? tutti_comm_size(spec.comm) : 1),
      rank_(spec.comm ? tutti_comm_rank(spec.comm) : 0),
      features_(math_),
      logits_(math_),
      all_dx_(math_),
      batches_(static_cast<std::size_t>(ranks_)) {}

Result<> tutti_sharded_fc::check_math(tutti_status status, const char* what) const {
    if (status == TUTTI_OK) return {};
    return fail(status, "sharded_fc: math.{} failed: {}", what, tutti_status_string(status))
        .advice("look at why the function math.{} returned this status", what);
}

Result<double> tutti_sharded_fc::forward(const float* x, const int64_t* labels, std::size_t batch,
                                         const float* weight, const float* bias) {
    forwarded_ = false;
    TRAINER_TRY(gather(x, labels, batch));
    TRAINER_TRY(check_labels());
    TRAINER_TRY(compute_logits(weight, bias));
    TRAINER_TRY(exponentiate());
    forwarded_ = true;
    return mean_loss();
}

/// Gives every rank all ranks' features and labels, which its classes' logits need.
Result<> tutti_sharded_fc::gather(const float* x, const int64_t* labels, std::size_t batch) {
    batches_[static_cast<std::size_t>(rank_)] = batch;
    if (ranks_ > 1)
        TRAINER_TRY(
            run_within("fc forward", "sharded_fc: batch sizes", [&](auto* opts, auto* request) {
                return tutti_iallgather(spec_.comm, &batch, batches_.data(), 1, TUTTI_UINT64, opts,
                                        request);
            }));
    samples_ = std::accumulate(batches_.begin(), batches_.end(), std::size_t{0});
    TRAINER_ASSIGN(float* const features, features_.get(samples_ * spec_.features));
    labels_.resize(samples_);
    std::vector<std::size_t> counts = batches_;
    if (ranks_ == 1) {
        std::copy_n(labels, batch, labels_.data());
        // A copy for the backward pass, when x may be gone. Only the program's functions access it.
        return check_math(math_.copy(math_.user, features, x, batch * spec_.features), "copy");
    }
    TRAINER_TRY(from_call(
        tutti_allgatherv(spec_.comm, labels, labels_.data(), counts.data(), nullptr, TUTTI_INT64),
        "sharded_fc: labels"));
    for (std::size_t& count : counts) count *= spec_.features;
    return gather_features(x, features, std::move(counts));
}

Result<> tutti_sharded_fc::gather_features(const float* x, float* features,
                                           std::vector<std::size_t> counts) {
    const std::size_t own = counts[static_cast<std::size_t>(rank_)];
    const std::size_t all = samples_ * spec_.features;
    const bool staged = math_.to_host != nullptr;
    if (staged) {
        own_.resize(own);
        all_.resize(all);
        if (own > 0)
            TRAINER_TRY(check_math(math_.to_host(math_.user, own_.data(), x, own), "to_host"));
    }
    TRAINER_TRY(from_call(
        tutti_allgatherv(spec_.comm, staged ? own_.data() : x, staged ? all_.data() : features,
                         counts.data(), nullptr, TUTTI_FLOAT32),
        "sharded_fc: features"));
    if (!staged || all == 0) return {};
    return check_math(math_.from_host(math_.user, features, all_.data(), all), "from_host");
}

Result<> tutti_sharded_fc::scatter_gradients(const float* all_dx, float* dx,
                                             std::vector<std::size_t> counts) {
    const std::size_t own = counts[static_cast<std::size_t>(rank_)];
    const std::size_t all = samples_ * spec_.features;
    const bool staged = math_.to_host != nullptr;
    if (staged && all > 0)
        TRAINER_TRY(check_math(math_.to_host(math_.user, all_.data(), all_dx, all), "to_host"));
    TRAINER_TRY(run_within(
        "fc backward", "sharded_fc: gradients of the features", [&](auto* opts, auto* request) {
            return tutti_ireduce_scatterv(spec_.comm, staged ? all_.data() : all_dx,
                                          staged ? own_.data() : dx, counts.data(), TUTTI_FLOAT32,
                                          TUTTI_SUM, opts, request);
        }));
    if (!staged || own == 0) return {};
    return check_math(math_.from_host(math_.user, dx, own_.data(), own), "from_host");
}

/// All ranks have all labels, so that all return the same error.
Result<> tutti_sharded_fc::check_labels() const {
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < batches_.size(); ++rank)
        for (std::size_t i = 0; i < batches_[rank]; ++i, ++at)
            if (labels_[at] != spec_.ignore && (labels_[at] < 0 || labels_[at] >= spec_.classes))
                return fail(TUTTI_ERR_INVALID,
                            "sharded_fc: label {} of sample {} on rank {} is out of range: there "
                            "are {} classes",
                            labels_[at], i, rank, spec_.classes)
                    .advice("pass labels from 0 to {}, or {} to ignore a sample", spec_.classes - 1,
                            spec_.ignore);
    return {};
}

Result<> tutti_sharded_fc::compute_logits(const float* weight, const float* bias) {
    const auto columns = static_cast<std::size_t>(range_.count);
    TRAINER_ASSIGN(float* const logits, logits_.get(samples_ * columns));
    columns_.resize(samples_);
    // The ignored label may be any number, even an index in this shard.
    std::transform(labels_.begin(), labels_.end(), columns_.begin(), [&](int64_t label) {
        const bool own =
            label != spec_.ignore && label >= range_.first && label < range_.first + range_.count;
        return own ? label - range_.first : -1;
    });
    if (samples_ == 0 || columns == 0) return {};
    TRAINER_ASSIGN(const float* const features, features_.get(0));
    TRAINER_TRY(check_math(math_.gemm(math_.user, 0, 1, samples_, columns, spec_.features, features,
                                      weight, 0, logits),
                           "gemm"));
    if (!bias) return {};
    return check_math(math_.add_bias(math_.user, logits, samples_, columns, bias), "add_bias");
}

Result<> tutti_sharded_fc::exponentiate() {
    const auto columns = static_cast<std::size_t>(range_.count);
    TRAINER_ASSIGN(float* const logits, logits_.get(0));
    max_.resize(samples_);
    sums_.assign(2 * samples_, 0);
    TRAINER_TRY(
        check_math(math_.row_max(math_.user, logits, samples_, columns, max_.data()), "row_max"));
    if (ranks_ > 1)
        TRAINER_TRY(from_call(tutti_allreduce(spec_.comm, max_.data(), max_.data(), samples_,
                                              TUTTI_FLOAT32, TUTTI_MAX),
                              "sharded_fc: maxima"));
    TRAINER_TRY(check_math(
        math_.pick(math_.user, logits, samples_, columns, columns_.data(), sums_.data() + samples_),
        "pick"));
    TRAINER_TRY(check_math(
        math_.exponentials(math_.user, logits, samples_, columns, max_.data(), sums_.data()),
        "exponentials"));
    if (ranks_ == 1) return {};
    return from_call(tutti_allreduce(spec_.comm, sums_.data(), sums_.data(), sums_.size(),
                                     TUTTI_FLOAT64, TUTTI_SUM),
                     "sharded_fc: sums");
}

double tutti_sharded_fc::mean_loss() {
    double loss = 0;
    counted_ = 0;
    for (std::size_t i = 0; i < samples_; ++i) {
        if (labels_[i] == spec_.ignore) continue;
        counted_ += 1;
        loss += std::log(sums_[i]) + double{max_[i]} - sums_[samples_ + i];
    }
    return counted_ > 0 ? loss / counted_ : 0;
}

Result<> tutti_sharded_fc::backward(double loss_scale, const float* weight, float* dx,
                                    float* dweight, float* dbias) {
    if (!forwarded_)
        return fail(TUTTI_ERR_INVALID, "sharded_fc: backward has no forward before it")
            .advice("call tutti_sharded_fc_backward once after each tutti_sharded_fc_forward");
    forwarded_ = false;  // the logits become gradients
    const auto columns = static_cast<std::size_t>(range_.count);
    const double share = counted_ > 0 ? loss_scale / counted_ : 0;
    std::vector<double> factors(samples_);
    for (std::size_t i = 0; i < samples_; ++i)
        factors[i] = labels_[i] == spec_.ignore ? 0 : share / sums_[i];
    TRAINER_ASSIGN(float* const logits, logits_.get(0));
    TRAINER_ASSIGN(const float* const features, features_.get(0));
    TRAINER_ASSIGN(float* const all_dx, all_dx_.get(samples_ * spec_.features));
    TRAINER_TRY(check_math(math_.gradient(math_.user, logits, samples_, columns, factors.data(),
                                          columns_.data(), share),
                           "gradient"));
    if (dbias)
        TRAINER_TRY(check_math(math_.column_sums(math_.user, logits, samples_, columns, dbias),
                               "column_sums"));
    TRAINER_TRY(check_math(math_.gemm(math_.user, 1, 0, columns, spec_.features, samples_, logits,
                                      features, 0, dweight),
                           "gemm"));
    float* const sum = ranks_ == 1 ? dx : all_dx;
    TRAINER_TRY(check_math(
        math_.gemm(math_.user, 0, 0, samples_, spec_.features, columns, logits, weight, 0, sum),
        "gemm"));
    if (ranks_ == 1) return {};
    std::vector<std::size_t> counts = batches_;
    for (std::size_t& count : counts) count *= spec_.features;
    return scatter_gradients(all_dx, dx, std::move(counts));
}
