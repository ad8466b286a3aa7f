#include "net.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

namespace face_like {
namespace {

constexpr float keep_momentum = 0.9F;
constexpr auto all_classes = static_cast<int64_t>(digits::classes);

constexpr int64_t extent(std::size_t count) {
    return static_cast<int64_t>(count);
}

void ok(tutti_status status) {
    if (status != TUTTI_OK) throw std::runtime_error(tutti_trainer_last_error());
}

/// c (m × n) = op(a) · op(b) + beta · c.
tutti_status product(void*, int ta, int tb, size_t m, size_t n, size_t k, const float* a,
                     const float* b, float beta, float* c) {
    const auto number = [](size_t value) { return static_cast<int>(value); };
    if (m == 0 || n == 0) return TUTTI_OK;
    // A BLAS requires leading dimensions of at least 1, even if there is nothing to add up.
    const auto leading = [&](size_t value) { return std::max(1, number(value)); };
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                number(m), number(n), number(k), 1, a, leading(ta ? m : k), b, leading(tb ? k : n),
                beta, c, number(n));
    return TUTTI_OK;
}

/// Returns the same numbers on every rank. Each rank makes the whole matrix, and then takes its own
/// rows.
Floats random_weights(std::size_t rows, std::size_t columns, unsigned seed) {
    std::mt19937 random(seed);
    const float spread = std::sqrt(2.0F / static_cast<float>(columns));
    Floats values(rows * columns);
    for (float& value : values)
        value = spread * (static_cast<float>(random() % 20001) / 10000.0F - 1.0F);
    return values;
}

// Every rank declares the same number of rows; on the last ranks some may be padding.
tutti::Shape shard_shape(const tutti::Communicator& comm) {
    return {(all_classes + comm.size() - 1) / comm.size(), extent(embedding)};
}

// units = ReLU(x · w + b).
void hide(const float* x, std::size_t samples, const float* w, const float* b, float* units) {
    product(nullptr, 0, 1, samples, hidden, digits::pixels, x, w, 0, units);
    for (std::size_t i = 0; i < samples * hidden; ++i)
        units[i] = std::max(0.0F, units[i] + b[i % hidden]);
}

}  // namespace

Batch to_batch(const std::vector<digits::Image>& images, const std::vector<std::size_t>& picked) {
    Batch batch;
    for (const std::size_t index : picked) {
        const digits::Image& image = images[index];
        for (const double value : image.values) batch.x.push_back(static_cast<float>(value));
        batch.labels.push_back(static_cast<int64_t>(image.label));
    }
    return batch;
}

Net::Net(tutti::Communicator& comm, const NetOptions& options) : comm_(comm), options_(options) {
    ok(tutti_shard_range(all_classes, comm.size(), comm.rank(), &first_, &own_));
    tutti_fc_math math = *tutti_fc_math_host();
    math.gemm = product;
    tutti_sharded_fc_spec layer = TUTTI_SHARDED_FC_SPEC_INIT;
    layer.comm = comm.get();
    layer.classes = all_classes;
    layer.features = embedding;
    layer.math = &math;
    tutti_sharded_fc* made = nullptr;
    ok(tutti_sharded_fc_create(&layer, &made));
    fc_.reset(made);
    trainer_.emplace(spec());
    initialise();
    trainer_->init_sync();
}

tutti::TrainerSpec Net::spec() {
    tutti::TrainerSpec spec;
    spec.comm = comm_.get();
    spec.options.execution = options_.dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
    spec.input = [this](tutti::Model& m) { build_input(m); };
    spec.forward = [this](tutti::Model& m, double) { return build_forward(m); };
    spec.update = [this](tutti::Model& m, double) { build_update(m); };
    return spec;
}

void Net::build_input(tutti::Model& m) {
    const auto capacity = static_cast<int64_t>(options_.capacity);
    const tutti_buffer x = m.input<float>("x", {capacity, extent(digits::pixels)});
    const tutti_buffer labels = m.input<int64_t>("labels", {capacity});
    m.operation("read", {}, {x, labels}, [=, this](const tutti::Step& s) {
        std::copy(batch_->x.begin(), batch_->x.end(), s.data<float>(x));
        std::copy(batch_->labels.begin(), batch_->labels.end(), s.data<int64_t>(labels));
    });
}

// The loss already is the mean over the samples of all ranks, so the gradients are added up without
// a scale.
tutti::Losses Net::build_forward(tutti::Model& m) {
    return {classify(m, embed(m, m.find("x")), m.find("labels"))};
}

tutti_buffer Net::embed(tutti::Model& m, tutti_buffer x) {
    const auto capacity = static_cast<int64_t>(options_.capacity);
    const tutti_buffer w1 =
        m.parameter<float>("weights1", {extent(hidden), extent(digits::pixels)});
    const tutti_buffer b1 = m.parameter<float>("bias1", {extent(hidden)});
    const tutti_buffer w2 = m.parameter<float>("weights2", {extent(embedding), extent(hidden)});
    const tutti_buffer units = m.activation<float>("units", {capacity, extent(hidden)});
    const tutti_buffer y = m.activation<float>("embedded", {capacity, extent(embedding)});
    m.operation(
        "units", {x, w1, b1}, {units},
        [=, this](const tutti::Step& s) {
            hide(s.data<float>(x), batch_->samples(), s.data<float>(w1), s.data<float>(b1),
                 s.data<float>(units));
        },
        [=, this](const tutti::Step& s) {
            float* d = s.gradient<float>(units);
            for (std::size_t i = 0; i < batch_->samples() * hidden; ++i) {
                if (s.data<float>(units)[i] <= 0) d[i] = 0;
                s.gradient<float>(b1)[i % hidden] += d[i];
            }
            product(nullptr, 1, 0, hidden, digits::pixels, batch_->samples(), d, s.data<float>(x),
                    1, s.gradient<float>(w1));
        });
    m.operation(
        "embedded", {units, w2}, {y},
        [=, this](const tutti::Step& s) {
            product(nullptr, 0, 1, batch_->samples(), embedding, hidden, s.data<float>(units),
                    s.data<float>(w2), 0, s.data<float>(y));
        },
        [=, this](const tutti::Step& s) {
            const float* d = s.gradient<float>(y);
            product(nullptr, 1, 0, embedding, hidden, batch_->samples(), d, s.data<float>(units), 1,
                    s.gradient<float>(w2));
            product(nullptr, 0, 0, batch_->samples(), hidden, embedding, d, s.data<float>(w2), 1,
                    s.gradient<float>(units));
        });
    return y;
}

// The ranks exchange features and sums here. Each rank's gradient of its classes is complete: it is
// a shard, which the layer does not reduce.
tutti_buffer Net::classify(tutti::Model& m, tutti_buffer embedded, tutti_buffer labels) {
    const tutti_buffer w = m.shard<float>("classes", shard_shape(comm_), all_classes);
    const tutti_buffer loss = m.activation<double>("loss", {1});
    m.operation(
        "classes", {embedded, labels, w}, {loss},
        [=, this](const tutti::Step& s) {
            ok(tutti_sharded_fc_forward(fc_.get(), s.data<float>(embedded), s.data<int64_t>(labels),
                                        batch_->samples(), s.data<float>(w), nullptr,
                                        s.data<double>(loss)));
        },
        [=, this](const tutti::Step& s) {
            ok(tutti_sharded_fc_backward(fc_.get(), *s.gradient<double>(loss), s.data<float>(w),
                                         s.gradient<float>(embedded), s.gradient<float>(w),
                                         nullptr));
        });
    return loss;
}

void Net::build_update(tutti::Model& m) const {
    const tutti_buffer lr = m.learning_rate(options_.rate);
    for (const char* name : {"weights1", "bias1", "weights2", "classes"}) {
        const tutti_buffer p = m.find(name), g = m.gradient(p);
        const tutti::Shape shape = m.shape(p);
        const int64_t count = shape.size() == 2 ? shape[0] * shape[1] : shape[0];
        const std::string momentum = std::string(name) + ".momentum";
        const tutti_buffer v = name == std::string("classes")
                                   ? m.shard<float>(momentum, shape, all_classes, TUTTI_STATE)
                                   : m.state<float>(momentum, shape);
        m.operation(momentum, {p, g, v, lr}, {p, v}, [=](const tutti::Step& s) {
            float *value = s.data<float>(p), *velocity = s.data<float>(v);
            const auto rate = static_cast<float>(*s.data<double>(lr));
            for (int64_t i = 0; i < count; ++i) {
                velocity[i] = keep_momentum * velocity[i] + s.data<float>(g)[i];
                value[i] -= rate * velocity[i];
            }
        });
    }
}

void Net::initialise() {
    trainer_->write(0, "weights1", random_weights(hidden, digits::pixels, 1));
    trainer_->write(0, "weights2", random_weights(embedding, hidden, 2));
    const Floats all = random_weights(digits::classes, embedding, 3);
    Floats own = trainer_->read<float>(0, "classes");
    std::copy_n(all.begin() + first_ * extent(embedding), own_ * extent(embedding), own.begin());
    trainer_->write(0, "classes", own);
}

double Net::train(const Batch& batch) {
    batch_ = &batch;
    trainer_->step();
    return trainer_->read<double>(0, "loss")[0];
}

double Net::accuracy(const Batch& batch) {
    const std::size_t samples = batch.samples(), own = static_cast<std::size_t>(own_);
    const auto learnt = [this](const char* name) { return trainer_->read<float>(0, name); };
    Floats units(samples * hidden), embedded(samples * embedding);
    hide(batch.x.data(), samples, learnt("weights1").data(), learnt("bias1").data(), units.data());
    product(nullptr, 0, 1, samples, embedding, hidden, units.data(), learnt("weights2").data(), 0,
            embedded.data());
    Floats logits(samples * own), best(samples, -INFINITY);
    std::vector<int64_t> which(samples, -1);
    product(nullptr, 0, 1, samples, own, embedding, embedded.data(), learnt("classes").data(), 0,
            logits.data());
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] > best[i / own]) {
            best[i / own] = logits[i];
            which[i / own] = first_ + static_cast<int64_t>(i % own);
        }
    Floats best_of_all = best;
    comm_.allreduce(best_of_all, TUTTI_MAX);
    for (std::size_t s = 0; s < samples; ++s)
        if (best[s] != best_of_all[s]) which[s] = -1;
    comm_.allreduce(which, TUTTI_MAX);
    std::size_t right = 0;
    for (std::size_t s = 0; s < samples; ++s) right += which[s] == batch.labels[s];
    return static_cast<double>(right) / static_cast<double>(samples);
}

void Net::save(const std::string& path, int epoch) {
    tutti::Checkpoint list;
    trainer_->add_to(list);
    list.set_text("epoch", std::to_string(epoch)).save(path, comm_.get());
}

int Net::load(const std::string& path) {
    tutti::Checkpoint list;
    trainer_->add_to(list);
    list.load(path, comm_.get());
    trainer_->sync();
    return std::stoi(list.text("epoch").value_or("0"));
}

}  // namespace face_like
