// Synchronised batch-norm: an exchange adds up the sums of a process's devices, and its operator
// adds those up over the hosts.
#include <atomic>
#include <cmath>
#include <vector>

#include "trainer/base/boundary.h"
#include "trainer/base/structs.h"
#include "trainer/parallel/pool.h"

using namespace tutti::trainer;            // NOLINT: the C functions are its face
using namespace tutti::trainer::parallel;  // NOLINT

namespace {

Result<> did(tutti_status status, int device, const char* what) {
    if (status == TUTTI_OK) return {};
    return fail_device(status, device, "sync_bn: {} on device {} failed: {}", what, device,
                       tutti_status_string(status))
        .advice("look at why the function spec.math.{} returned this status", what);
}

}  // namespace

struct tutti_sync_bn {
public:
    tutti_sync_bn(tutti_pool& pool, const tutti_sync_bn_spec& spec, const tutti_bn_math& math,
                  std::shared_ptr<HostComm> hosts);
    ~tutti_sync_bn() { pool_.detach(*exchange_); }

    struct Shape {
        std::size_t rows, inner;
    };
    Result<> train(int device, const void* x, Shape shape, const void* gamma, const void* beta,
                   void* y);
    Result<> evaluate(int device, const void* x, Shape shape, const void* gamma, const void* beta,
                      void* y);
    Result<> backward(int device, const void* x, const void* dy, Shape shape, const void* gamma,
                      void* dx, void* dgamma, void* dbeta);
    Result<> check_device(int device) const;
    uint64_t bytes() const { return bytes_; }

private:
    /// The values that a device stores in a training forward for its backward.
    struct Saved {
        std::vector<double> mean, inverse;
        double count = 0;  // of the joined batch, elements of a channel
    };

    static tutti_status combine(void* user, const void* const* inputs, void* const* outputs,
                                int devices, size_t bytes);
    Result<> add_hosts(double* sums, std::size_t count) const;
    /// Adds up over devices and hosts, in place.
    Result<> add_up(int device, std::vector<double>& sums);
    Result<> update_running(const std::vector<double>& mean, const std::vector<double>& variance,
                            double count);
    Result<> blend(int device, void* running, const std::vector<double>& batch, double factor);

    tutti_pool& pool_;
    const std::size_t channels_;
    const double epsilon_, momentum_;
    std::vector<void*> running_mean_, running_var_;
    const std::shared_ptr<HostComm> hosts_;  // null: this process alone
    const tutti_bn_math math_;
    const std::shared_ptr<DeviceExchange> exchange_;
    std::vector<Saved> saved_;
    std::atomic<uint64_t> bytes_{0};
};

tutti_sync_bn::tutti_sync_bn(tutti_pool& pool, const tutti_sync_bn_spec& spec,
                             const tutti_bn_math& math, std::shared_ptr<HostComm> hosts)
    : pool_(pool),
      channels_(spec.channels),
      epsilon_(spec.epsilon),
      momentum_(spec.momentum),
      hosts_(std::move(hosts)),
      math_(math),
      exchange_(
          std::make_shared<DeviceExchange>(tutti_parallel_spec{sizeof(tutti_parallel_spec), combine,
                                                               this, TUTTI_FLOAT64, -1, nullptr},
                                           std::vector<Device*>())),
      saved_(static_cast<std::size_t>(pool.size())) {
    if (spec.running_mean && spec.running_var) {
        running_mean_.assign(spec.running_mean, spec.running_mean + pool.size());
        running_var_.assign(spec.running_var, spec.running_var + pool.size());
    }
    pool_.attach(exchange_);
}

tutti_status tutti_sync_bn::combine(void* user, const void* const* inputs, void* const* outputs,
                                    int devices, size_t bytes) {
    auto& layer = *static_cast<tutti_sync_bn*>(user);
    const std::size_t count = bytes / sizeof(double);
    auto* sums = static_cast<double*>(outputs[0]);
    for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int d = 0; d < devices; ++d) sum += static_cast<const double*>(inputs[d])[i];
        sums[i] = sum;
    }
    // Runs on the thread of the last device to push; one at a time, in the order of the rounds.
    if (layer.hosts_) {
        layer.bytes_ += bytes;
        if (const auto sent = layer.add_hosts(sums, count); !sent) return keep(sent.error());
    }
    for (int d = 1; d < devices; ++d) std::copy_n(sums, count, static_cast<double*>(outputs[d]));
    return TUTTI_OK;
}

Result<> tutti_sync_bn::add_hosts(double* sums, std::size_t count) const {
    tutti_comm* comm = hosts_->get();
    const tutti_status status = tutti_allreduce(comm, sums, sums, count, TUTTI_FLOAT64, TUTTI_SUM);
    if (status != TUTTI_ERR_ABORTED) return from_call(status, "sync_bn: sum over the hosts");
    const int rank = tutti_last_error_rank();
    return fail_rank(status, rank,
                     "sync_bn: a replica of rank {} failed, in this step or an earlier one", rank)
        .advice("read the error of rank {}; to go on, make a new pool and new layers", rank);
}

Result<> tutti_sync_bn::add_up(int device, std::vector<double>& sums) {
    if (hosts_) pool_.set_adds_hosts();  // before the push, so that a failed push is also reported
    TRAINER_ASSIGN(const uint64_t round,
                   exchange_->push(device, sums.data(), sums.data(), sums.size() * sizeof(double)));
    return exchange_->pull(round);
}

Result<> tutti_sync_bn::check_device(int device) const {
    if (device >= 0 && device < pool_.size()) return {};
    return fail(TUTTI_ERR_INVALID, "sync_bn: device {} is out of range: the pool has {} devices",
                device, pool_.size())
        .advice("pass a device from 0 to {}", pool_.size() - 1);
}

Result<> tutti_sync_bn::train(int device, const void* x, Shape shape, const void* gamma,
                              const void* beta, void* y) {
    std::vector<double> sums(2 * channels_ + 1);
    TRAINER_TRY(
        did(math_.sums(math_.user, device, x, shape.rows, channels_, shape.inner, sums.data()),
            device, "sums"));
    sums.back() = static_cast<double>(shape.rows * shape.inner);
    TRAINER_TRY(add_up(device, sums));
    Saved& saved = saved_[static_cast<std::size_t>(device)];
    saved.count = sums.back();
    if (saved.count < 1)
        return fail(TUTTI_ERR_INVALID, "sync_bn: no device of any host has a sample")
            .agreed()
            .advice("pass one sample or more on some device");
    saved.mean.resize(channels_);
    saved.inverse.resize(channels_);
    std::vector<double> variance(channels_);
    for (std::size_t c = 0; c < channels_; ++c) {
        saved.mean[c] = sums[c] / saved.count;
        variance[c] =
            std::max(0.0, sums[channels_ + c] / saved.count - saved.mean[c] * saved.mean[c]);
        saved.inverse[c] = 1 / std::sqrt(variance[c] + epsilon_);
    }
    // Device 0 takes part in every round.
    if (device == 0) TRAINER_TRY(update_running(saved.mean, variance, saved.count));
    return did(math_.normalize(math_.user, device, x, shape.rows, channels_, shape.inner,
                               saved.mean.data(), saved.inverse.data(), gamma, beta, y),
               device, "normalize");
}

Result<> tutti_sync_bn::update_running(const std::vector<double>& mean,
                                       const std::vector<double>& variance, double count) {
    const double unbiased = count > 1 ? count / (count - 1) : 1;
    for (std::size_t d = 0; d < running_mean_.size(); ++d) {
        const int device = static_cast<int>(d);
        // Devices may share one array: update it only once.
        const auto known = std::find(running_mean_.begin(), running_mean_.end(), running_mean_[d]);
        if (known - running_mean_.begin() != device) continue;
        TRAINER_TRY(blend(device, running_mean_[d], mean, 1));
        TRAINER_TRY(blend(device, running_var_[d], variance, unbiased));
    }
    return {};
}

Result<> tutti_sync_bn::blend(int device, void* running, const std::vector<double>& batch,
                              double factor) {
    std::vector<double> values(channels_);
    TRAINER_TRY(
        did(math_.load(math_.user, device, running, channels_, values.data()), device, "load"));
    for (std::size_t c = 0; c < channels_; ++c)
        values[c] = (1 - momentum_) * values[c] + momentum_ * factor * batch[c];
    return did(math_.store(math_.user, device, values.data(), channels_, running), device, "store");
}

Result<> tutti_sync_bn::evaluate(int device, const void* x, Shape shape, const void* gamma,
                                 const void* beta, void* y) {
    if (running_mean_.empty())
        return fail(TUTTI_ERR_INVALID,
                    "sync_bn: evaluation needs running statistics, and the layer was made without")
            .advice("set spec.running_mean and spec.running_var in tutti_sync_bn_create");
    const auto at = static_cast<std::size_t>(device);
    std::vector<double> mean(channels_), inverse(channels_);
    TRAINER_TRY(did(math_.load(math_.user, device, running_mean_[at], channels_, mean.data()),
                    device, "load"));
    TRAINER_TRY(did(math_.load(math_.user, device, running_var_[at], channels_, inverse.data()),
                    device, "load"));
    for (double& value : inverse) value = 1 / std::sqrt(value + epsilon_);
    return did(math_.normalize(math_.user, device, x, shape.rows, channels_, shape.inner,
                               mean.data(), inverse.data(), gamma, beta, y),
               device, "normalize");
}

Result<> tutti_sync_bn::backward(int device, const void* x, const void* dy, Shape shape,
                                 const void* gamma, void* dx, void* dgamma, void* dbeta) {
    const Saved& saved = saved_[static_cast<std::size_t>(device)];
    if (saved.mean.empty())
        return fail_device(TUTTI_ERR_INVALID, device,
                           "sync_bn: backward on device {} comes before a training forward", device)
            .advice("call tutti_sync_bn_forward with training = 1 before");
    std::vector<double> sums(2 * channels_);
    TRAINER_TRY(
        did(math_.gradient_sums(math_.user, device, x, dy, shape.rows, channels_, shape.inner,
                                saved.mean.data(), saved.inverse.data(), sums.data()),
            device, "gradient_sums"));
    if (dbeta)
        TRAINER_TRY(
            did(math_.store(math_.user, device, sums.data(), channels_, dbeta), device, "store"));
    if (dgamma)
        TRAINER_TRY(did(math_.store(math_.user, device, sums.data() + channels_, channels_, dgamma),
                        device, "store"));
    TRAINER_TRY(add_up(device, sums));
    for (double& sum : sums) sum /= saved.count;
    return did(
        math_.input_gradient(math_.user, device, x, dy, shape.rows, channels_, shape.inner,
                             saved.mean.data(), saved.inverse.data(), sums.data(), gamma, dx),
        device, "input_gradient");
}

extern "C" {

tutti_status tutti_sync_bn_create(tutti_pool* pool, const tutti_sync_bn_spec* spec,
                                  tutti_sync_bn** layer) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_sync_bn_create";
        if (!pool || !spec) return null_argument(function, pool ? "spec" : "pool");
        if (!layer) return null_argument(function, "layer");
        const tutti_sync_bn_spec defaults = TUTTI_SYNC_BN_SPEC_INIT;
        TRAINER_ASSIGN(
            const tutti_sync_bn_spec known,
            read_struct("tutti_sync_bn_create: spec", spec, defaults, "TUTTI_SYNC_BN_SPEC_INIT"));
        if (known.channels == 0 || !(known.epsilon >= 0) ||
            !(known.momentum >= 0 && known.momentum <= 1))
            return fail(TUTTI_ERR_INVALID,
                        "{}: spec.channels is {}, spec.epsilon {}, spec.momentum {}", function,
                        known.channels, known.epsilon, known.momentum)
                .advice(
                    "set channels to 1 or more, epsilon to 0 or more, and momentum to 0 up to 1");
        if ((known.running_mean == nullptr) != (known.running_var == nullptr))
            return fail(TUTTI_ERR_INVALID, "{}: spec has only one of running_mean and running_var",
                        function)
                .advice("set both, or neither");
        const tutti_bn_math& math = known.math ? *known.math : *tutti_bn_math_host();
        if (math.struct_size < sizeof math || !math.sums || !math.normalize ||
            !math.gradient_sums || !math.input_gradient || !math.load || !math.store)
            return fail(TUTTI_ERR_INVALID, "{}: spec.math lacks a function", function)
                .advice("copy the struct of tutti_bn_math_host() and replace functions in it");
        std::shared_ptr<HostComm> hosts;
        if (known.comm && tutti_comm_size(known.comm) > 1) {
            TRAINER_ASSIGN(hosts, pool->hosts_of(known.comm));
        }
        *layer = new tutti_sync_bn(*pool, known, math, std::move(hosts));
        return {};
    });
}

void tutti_sync_bn_destroy(tutti_sync_bn* layer) {
    delete layer;
}

tutti_status tutti_sync_bn_forward(tutti_sync_bn* layer, int device, int training, const void* x,
                                   size_t rows, size_t inner, const void* gamma, const void* beta,
                                   void* y) {
    return guard([&]() -> Result<> {
        if (!layer) return null_argument("tutti_sync_bn_forward", "layer");
        TRAINER_TRY(layer->check_device(device));
        const tutti_sync_bn::Shape shape{rows, inner};
        return training ? layer->train(device, x, shape, gamma, beta, y)
                        : layer->evaluate(device, x, shape, gamma, beta, y);
    });
}

tutti_status tutti_sync_bn_backward(tutti_sync_bn* layer, int device, const void* x, const void* dy,
                                    size_t rows, size_t inner, const void* gamma, void* dx,
                                    void* dgamma, void* dbeta) {
    return guard([&]() -> Result<> {
        if (!layer) return null_argument("tutti_sync_bn_backward", "layer");
        TRAINER_TRY(layer->check_device(device));
        return layer->backward(device, x, dy, {rows, inner}, gamma, dx, dgamma, dbeta);
    });
}

uint64_t tutti_sync_bn_bytes(const tutti_sync_bn* layer) {
    return layer ? layer->bytes() : 0;
}
}
