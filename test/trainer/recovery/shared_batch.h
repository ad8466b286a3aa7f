// A linear model whose batch is the same for any number of replicas: each has a share of it. So the
// parameters after a step do not depend on the number of ranks, up to rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/net.h"
#include "tutti/trainer.hpp"

namespace shared_batch {

inline constexpr int64_t batch = 24;

/// Called in an operation of device 0 at a moment of a step: "read", "forward", "backward" or
/// "update".
using Moment = std::function<void(const char* moment, int64_t step)>;

struct Way {
    int devices = 1;
    bool dag = false;
    bool external = false;  // the test itself is the framework
    bool even = false;      // the trainer does not count samples: all shares have one length
    bool recover = true;
    bool resizes = true;     // steps are repeated inside of tutti_trainer_step
    bool exchanges = false;  // the update has a collective of its own, after the step of w
    int64_t width = 4;
    std::vector<tutti_device*> own_devices = {};
};

/// One rank.
class Learner {
public:
    Learner(tutti_comm* comm, Way way, Moment moment = {})
        : way_(std::move(way)), moment_(std::move(moment)), trainer(spec(comm)) {
        std::vector<double> w(static_cast<std::size_t>(way_.width));
        for (std::size_t i = 0; i < w.size(); ++i) w[i] = net::noise(i);
        trainer.write(0, "w", w);
    }
    Learner(const Learner&) = delete;

    int rank() const { return trainer.comm() ? tutti_comm_rank(trainer.comm()) : 0; }
    int ranks() const { return trainer.comm() ? tutti_comm_size(trainer.comm()) : 1; }
    void step() {
        const std::vector<int64_t> samples = share_out(rank(), ranks());
        if (way_.external)
            external_step();
        else if (way_.even)
            trainer.step();
        else
            trainer.step(samples);
    }
    /// All that must be the same on all ranks.
    std::vector<double> values() const {
        std::vector<double> all;
        for (const char* name : names) {
            const std::vector<double> part = trainer.read<double>(way_.devices - 1, name);
            all.insert(all.end(), part.begin(), part.end());
        }
        all.push_back(static_cast<double>(trainer.read<int64_t>(0, "iteration")[0]));
        return all;
    }

private:
    static constexpr const char* names[] = {"w", "b", "v.w", "v.b", "mean"};

    struct Share {
        int64_t begin = 0, end = 0;
    };
    std::vector<int64_t> share_out(int rank, int ranks) {
        const int64_t parts = ranks * way_.devices;
        std::vector<int64_t> samples;
        shares_.clear();
        for (int64_t d = 0; d < way_.devices; ++d) {
            const int64_t part = rank * way_.devices + d;
            shares_.push_back({batch * part / parts, batch * (part + 1) / parts});
            samples.push_back(shares_.back().end - shares_.back().begin);
        }
        return samples;
    }
    const Share& share(int device) const { return shares_[static_cast<std::size_t>(device)]; }
    int64_t count(const tutti::Step& s) const {
        return share(s.device()).end - share(s.device()).begin;
    }
    void reach(const char* moment, const tutti::Step& s) const {
        if (moment_ && s.device() == 0) moment_(moment, s.iteration());
    }
    double x(int64_t step, int64_t sample, int64_t k) const {
        return net::noise(static_cast<uint64_t>((step * batch + sample) * way_.width + k));
    }
    double target(int64_t step, int64_t sample) const {
        return std::sin(10 * x(step, sample, 0)) + x(step, sample, way_.width - 1);
    }
    double scale() const { return 1 / static_cast<double>(batch); }
    double rate() const { return 0.3 / static_cast<double>(way_.width); }

    tutti::TrainerSpec spec(tutti_comm* comm) {
        tutti::TrainerSpec spec;
        spec.devices = way_.devices;
        spec.own_devices = way_.own_devices;
        spec.comm = comm;
        spec.options.uneven = !way_.external && !way_.even;
        spec.options.execution = way_.dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
        spec.options.external_autograd = way_.external;
        spec.options.first_bucket_bytes = spec.options.bucket_bytes = 16;  // a bucket each
        spec.options.max_in_flight = 1;
        if (!way_.external) spec.input = [this](tutti::Model& m) { input(m); };
        spec.forward = [this](tutti::Model& m, double) { return forward(m); };
        spec.update = [this](tutti::Model& m, double) { update(m); };
        spec.recover = way_.recover;
        if (way_.resizes)
            spec.resize = [this](int r, int n) {
                const std::vector<int64_t> samples = share_out(r, n);
                return way_.even ? std::vector<int64_t>() : samples;
            };
        return spec;
    }
    void input(tutti::Model& m) {
        const tutti_buffer in = m.input<double>("x", {batch, way_.width});
        const tutti_buffer wanted = m.input<double>("target", {batch});
        m.operation("read", {}, {in, wanted}, [=, this](const tutti::Step& s) {
            reach("read", s);
            const Share part = share(s.device());
            for (int64_t i = part.begin; i < part.end; ++i) {
                for (int64_t k = 0; k < way_.width; ++k)
                    s.data<double>(in)[(i - part.begin) * way_.width + k] = x(s.iteration(), i, k);
                s.data<double>(wanted)[i - part.begin] = target(s.iteration(), i);
            }
        });
    }
    tutti::Losses forward(tutti::Model& m) {
        const tutti_buffer w = m.parameter<double>("w", {way_.width});
        const tutti_buffer b = m.parameter<double>("b", {1});
        const tutti_buffer mean = m.computed<double>("mean", {1});
        if (way_.external) return {};
        const tutti_buffer in = m.find("x"), wanted = m.find("target");
        const tutti_buffer own = m.activation<double>("own", {2});
        const tutti_buffer all = m.activation<double>("all", {2});
        m.operation("sum", {in}, {own}, [=, this](const tutti::Step& s) {
            double* sums = s.data<double>(own);
            sums[0] = 0;
            sums[1] = static_cast<double>(count(s));
            for (int64_t i = 0; i < count(s); ++i) sums[0] += s.data<double>(in)[i * way_.width];
        });
        m.collective("totals", TUTTI_COLLECTIVE_ALLREDUCE, own, all);
        m.operation("statistics", {all, mean}, {mean}, [=](const tutti::Step& s) {
            const double* sums = s.data<double>(all);
            *s.data<double>(mean) += 0.1 * (sums[0] / sums[1] - *s.data<double>(mean));
        });
        const tutti_buffer y = m.activation<double>("y", {batch});
        add_linear(m, in, w, b, y);
        const tutti_buffer loss = m.activation<double>("loss", {1});
        add_loss(m, y, wanted, loss);
        return {loss};
    }
    void add_loss(tutti::Model& m, tutti_buffer y, tutti_buffer wanted, tutti_buffer loss) {
        const auto error = [=](const tutti::Step& s, int64_t i) {
            return s.data<double>(y)[i] - s.data<double>(wanted)[i];
        };
        m.operation(
            "error", {y, wanted}, {loss},
            [=, this](const tutti::Step& s) {
                double sum = 0;
                for (int64_t i = 0; i < count(s); ++i) sum += error(s, i) * error(s, i);
                *s.data<double>(loss) = s.loss_scale() * sum / static_cast<double>(count(s));
            },
            [=, this](const tutti::Step& s) {
                const double scale = 2 * s.loss_scale() / static_cast<double>(count(s));
                for (int64_t i = 0; i < count(s); ++i)
                    s.gradient<double>(y)[i] += *s.gradient<double>(loss) * scale * error(s, i);
            });
    }
    void add_linear(tutti::Model& m, tutti_buffer in, tutti_buffer w, tutti_buffer b,
                    tutti_buffer y) {
        m.operation(
            "linear", {in, w, b}, {y},
            [=, this](const tutti::Step& s) {
                reach("forward", s);
                for (int64_t i = 0; i < count(s); ++i) {
                    double sum = *s.data<double>(b);
                    for (int64_t k = 0; k < way_.width; ++k)
                        sum += s.data<double>(w)[k] * s.data<double>(in)[i * way_.width + k];
                    s.data<double>(y)[i] = sum;
                }
            },
            [=, this](const tutti::Step& s) {
                reach("backward", s);
                for (int64_t i = 0; i < count(s); ++i) {
                    const double d = s.gradient<double>(y)[i];
                    *s.gradient<double>(b) += d;
                    for (int64_t k = 0; k < way_.width; ++k)
                        s.gradient<double>(w)[k] += d * s.data<double>(in)[i * way_.width + k];
                }
            });
    }
    void update(tutti::Model& m) {
        m.iteration();
        std::vector<tutti_buffer> exchanged;
        for (const auto& [name, count] : {std::pair{"w", way_.width}, {"b", int64_t{1}}}) {
            const tutti_buffer p = m.find(name), g = m.gradient(p);
            const tutti_buffer v = m.state<double>(std::string("v.") + name, {count});
            std::vector<tutti_buffer> reads = {p, g, v};
            reads.insert(reads.end(), exchanged.begin(), exchanged.end());
            m.operation(std::string("update.") + name, reads, {p, v},
                        [=, this, n = count](const tutti::Step& s) {
                            reach("update", s);
                            for (int64_t i = 0; i < n; ++i) {
                                double& speed = s.data<double>(v)[i];
                                speed = 0.5 * speed + s.data<double>(g)[i];
                                s.data<double>(p)[i] -= rate() * speed;
                            }
                        });
            if (way_.exchanges && exchanged.empty()) exchanged = {add_exchange(m, v)};
        }
    }
    // The sum of the momenta, for nothing.
    tutti_buffer add_exchange(tutti::Model& m, tutti_buffer v) {
        const tutti_buffer all = m.state<double>("all.v", m.shape(v));
        m.collective("momenta", TUTTI_COLLECTIVE_ALLREDUCE, v, all);
        return all;
    }
    // The arithmetic of the operations, as a framework with its own autograd does it.
    void external_step() {
        trainer.begin();
        const int64_t step = trainer.read<int64_t>(0, "iteration")[0];
        double statistics = 0;
        for (int64_t i = 0; i < batch; ++i) statistics += x(step, i, 0);
        for (int d = 0; d < way_.devices; ++d) {
            if (moment_ && d == 0) moment_("forward", step);
            double& mean = *data(d, "mean");
            mean += 0.1 * (statistics / static_cast<double>(batch) - mean);
            const Share part = share(d);
            for (int64_t i = part.begin; i < part.end; ++i) {
                double y = *data(d, "b");
                for (int64_t k = 0; k < way_.width; ++k) y += data(d, "w")[k] * x(step, i, k);
                const double dy = 2 * scale() * (y - target(step, i));
                *data(d, "b_grad") += dy;
                for (int64_t k = 0; k < way_.width; ++k) data(d, "w_grad")[k] += dy * x(step, i, k);
            }
        }
        if (moment_) moment_("backward", step);
        try {
            for (int d = 0; d < way_.devices; ++d)
                for (const char* name : {"b", "w"}) trainer.grad_ready(d, name);
        } catch (const tutti::Error&) {
            // finish has the error, too
        }
        trainer.finish();
    }
    double* data(int device, const char* name) const {
        return static_cast<double*>(trainer.find(device, name).data);
    }

    Way way_;
    Moment moment_;
    std::vector<Share> shares_;

public:
    tutti::Trainer trainer;
};

/// Calls it again after each loss of a rank.
inline void in_any_case(const std::function<void()>& call) {
    for (;;) try {
            return call();
        } catch (const tutti::Error& error) {
            if (error.status() != TUTTI_ERR_PEER_LOST) throw;
        }
}

}  // namespace shared_batch
