#include "training.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

namespace digits {

Training::Training(tutti::Communicator& comm, Dataset dataset, const TrainingOptions& options)
    : comm_(comm),
      dataset_(std::move(dataset)),
      options_(options),
      model_(options.seed),
      optimizer_(options.rate, options.momentum),
      order_random_(options.seed + 1),
      sums_(parameter_count + 1) {
    for (const Image& image : dataset_.training) order_.push_back(&image);
    comm_.broadcast(model_.parameters(), 0);
}

Training::Share Training::share_of(std::size_t count) const {
    const auto rank = static_cast<std::size_t>(comm_.rank());
    const auto size = static_cast<std::size_t>(comm_.size());
    return {count * rank / size, count * (rank + 1) / size};
}

double Training::train_batch(std::span<const Image* const> batch) {
    const Share share = share_of(batch.size());
    std::fill(sums_.begin(), sums_.end(), 0.0);
    const std::span<double> gradient(sums_.data(), parameter_count);
    const Score score =
        model_.add_gradient(batch.subspan(share.begin, share.end - share.begin), gradient);
    sums_.back() = score.loss;
    comm_.allreduce(sums_);
    for (double& value : gradient) value /= static_cast<double>(batch.size());
    optimizer_.step(model_.parameters(), gradient);
    return sums_.back();
}

double Training::accuracy(std::span<const Image> images) {
    const Share share = share_of(images.size());
    std::array<double, 1> correct{
        model_.evaluate(images.subspan(share.begin, share.end - share.begin)).correct};
    comm_.allreduce(correct);
    return correct[0] / static_cast<double>(images.size());
}

Epoch Training::run_epoch() {
    shuffle(order_, order_random_);
    double loss = 0;
    for (std::size_t at = 0; at < order_.size(); at += options_.batch) {
        const std::size_t count = std::min(options_.batch, order_.size() - at);
        loss += train_batch(std::span(order_).subspan(at, count));
    }
    return {.loss = loss / static_cast<double>(order_.size()),
            .training_accuracy = accuracy(dataset_.training),
            .test_accuracy = accuracy(dataset_.test)};
}

bool Training::in_step() {
    const auto bytes = std::as_bytes(model_.parameters());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const uint64_t hash = std::hash<std::string_view>{}(text);
    std::array<uint64_t, 1> smallest{hash};
    std::array<uint64_t, 1> largest{hash};
    comm_.allreduce(smallest, TUTTI_MIN);
    comm_.allreduce(largest, TUTTI_MAX);
    return smallest == largest;
}

}  // namespace digits
