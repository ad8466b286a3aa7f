#include "net.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

namespace face_like {
namespace {

constexpr float keep_momentum = 0.9F;

void ok(tutti_status status) {
    if (status != TUTTI_OK) throw std::runtime_error(tutti_trainer_last_error());
}

/// c (m × n) = op(a) · op(b) + beta · c.
tutti_status product(void*, int ta, int tb, size_t m, size_t n, size_t k, const float* a,
                     const float* b, float beta, float* c) {
    const auto number = [](size_t value) { return static_cast<int>(value); };
    if (m == 0 || n == 0) return TUTTI_OK;
    // A BLAS wants leading dimensions of at least 1, also where there is nothing to add up.
    const auto leading = [&](size_t value) { return std::max(1, number(value)); };
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                number(m), number(n), number(k), 1, a, leading(ta ? m : k), b, leading(tb ? k : n),
                beta, c, number(n));
    return TUTTI_OK;
}

/// The same numbers whoever asks: every rank fills the whole and takes its rows.
Floats random_weights(std::size_t rows, std::size_t columns, unsigned seed) {
    std::mt19937 random(seed);
    const float spread = std::sqrt(2.0F / static_cast<float>(columns));
    Floats values(rows * columns);
    for (float& value : values)
        value = spread * (static_cast<float>(random() % 20001) / 10000.0F - 1.0F);
    return values;
}

}  // namespace

void Learnt::update(float rate) {
    for (std::size_t i = 0; i < value.size(); ++i) {
        momentum[i] = keep_momentum * momentum[i] + gradient[i];
        value[i] -= rate * momentum[i];
    }
}

Batch to_batch(const std::vector<digits::Image>& images, const std::vector<std::size_t>& picked) {
    Batch batch;
    for (const std::size_t index : picked) {
        const digits::Image& image = images[index];
        for (const double value : image.values) batch.x.push_back(static_cast<float>(value));
        batch.labels.push_back(static_cast<int64_t>(image.label));
    }
    return batch;
}

Net::Net(tutti::Communicator& comm)
    : comm_(comm),
      weights1_(hidden * digits::pixels),
      bias1_(hidden),
      weights2_(embedding * hidden) {
    constexpr auto classes = static_cast<int64_t>(digits::classes);
    ok(tutti_shard_range(classes, comm.size(), comm.rank(), &first_, &own_));
    weights1_.value = random_weights(hidden, digits::pixels, 1);
    weights2_.value = random_weights(embedding, hidden, 2);
    classes_ = std::make_unique<Learnt>(static_cast<std::size_t>(own_) * embedding);
    const Floats all = random_weights(digits::classes, embedding, 3);
    std::copy_n(all.begin() + first_ * static_cast<int64_t>(embedding), classes_->value.size(),
                classes_->value.begin());
    tutti_fc_math math = *tutti_fc_math_host();
    math.gemm = product;
    tutti_sharded_fc_spec spec = TUTTI_SHARDED_FC_SPEC_INIT;
    spec.comm = comm.get();
    spec.classes = classes;
    spec.features = embedding;
    spec.math = &math;
    ok(tutti_sharded_fc_create(&spec, &fc_));
}

Net::~Net() {
    tutti_sharded_fc_destroy(fc_);
}

void Net::embed(const Batch& batch) {
    const std::size_t samples = batch.labels.size();
    hidden_.resize(samples * hidden);
    embedded_.resize(samples * embedding);
    product(nullptr, 0, 1, samples, hidden, digits::pixels, batch.x.data(), weights1_.value.data(),
            0, hidden_.data());
    for (std::size_t i = 0; i < hidden_.size(); ++i)
        hidden_[i] = std::max(0.0F, hidden_[i] + bias1_.value[i % hidden]);
    product(nullptr, 0, 1, samples, embedding, hidden, hidden_.data(), weights2_.value.data(), 0,
            embedded_.data());
}

/// From embedded_gradient_ to the gradients of the embedding's weights, of this rank's samples.
void Net::embed_backward(const Batch& batch) {
    const std::size_t samples = batch.labels.size();
    product(nullptr, 1, 0, embedding, hidden, samples, embedded_gradient_.data(), hidden_.data(), 0,
            weights2_.gradient.data());
    hidden_gradient_.resize(hidden_.size());
    product(nullptr, 0, 0, samples, hidden, embedding, embedded_gradient_.data(),
            weights2_.value.data(), 0, hidden_gradient_.data());
    std::fill(bias1_.gradient.begin(), bias1_.gradient.end(), 0.0F);
    for (std::size_t i = 0; i < hidden_.size(); ++i) {
        if (hidden_[i] <= 0) hidden_gradient_[i] = 0;
        bias1_.gradient[i % hidden] += hidden_gradient_[i];
    }
    product(nullptr, 1, 0, hidden, digits::pixels, samples, hidden_gradient_.data(), batch.x.data(),
            0, weights1_.gradient.data());
}

double Net::train(const Batch& batch, float rate) {
    embed(batch);
    double loss = 0;
    ok(tutti_sharded_fc_forward(fc_, embedded_.data(), batch.labels.data(), batch.labels.size(),
                                classes_->value.data(), nullptr, &loss));
    embedded_gradient_.resize(embedded_.size());
    ok(tutti_sharded_fc_backward(fc_, 1, classes_->value.data(), embedded_gradient_.data(),
                                 classes_->gradient.data(), nullptr));
    embed_backward(batch);
    // The loss is the mean over all ranks' samples already: gradients add up. The classes' gradient
    // is complete on the rank that has them.
    for (Learnt* learnt : {&weights1_, &bias1_, &weights2_}) {
        comm_.allreduce(learnt->gradient);
        learnt->update(rate);
    }
    classes_->update(rate);
    return loss;
}

double Net::accuracy(const Batch& batch) {
    embed(batch);
    const std::size_t samples = batch.labels.size(), own = static_cast<std::size_t>(own_);
    Floats logits(samples * own), best(samples, -INFINITY);
    std::vector<int64_t> which(samples, -1);
    product(nullptr, 0, 1, samples, own, embedding, embedded_.data(), classes_->value.data(), 0,
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

/// What a checkpoint is made of.
tutti::Checkpoint Net::state() {
    tutti::Checkpoint list;
    const auto whole = [&](const std::string& name, Learnt& learnt) {
        list.add(name, learnt.value).add(name + "/momentum", learnt.momentum);
    };
    whole("weights1", weights1_);
    whole("bias1", bias1_);
    whole("weights2", weights2_);
    const tutti::Checkpoint::Shape shape{digits::classes, embedding};
    list.add_shard("classes", classes_->value, shape, first_);
    list.add_shard("classes/momentum", classes_->momentum, shape, first_);
    return list;
}

void Net::save(const std::string& path, int epoch) {
    state().set_text("epoch", std::to_string(epoch)).save(path, comm_.get());
}

int Net::load(const std::string& path) {
    tutti::Checkpoint list = state();
    list.load(path, comm_.get());
    return std::stoi(list.text("epoch").value_or("0"));
}

}  // namespace face_like
