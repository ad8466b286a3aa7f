#include "reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "../digits/dataset.h"
#include "grey_png.h"

namespace imagenet_like {
namespace {

// A generator for one purpose. Neighbouring arguments give unrelated sequences.
std::mt19937_64 random_of(uint64_t seed, uint64_t epoch, uint64_t which) {
    std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                        static_cast<uint32_t>(epoch), static_cast<uint32_t>(which),
                        static_cast<uint32_t>(which >> 32)};
    return std::mt19937_64(words);
}

// The image moved by up to one pixel each way; new pixels at the edges are background.
void add_moved(const Grey& image, int dx, int dy, std::vector<float>& pixels) {
    const int width = static_cast<int>(image.width), height = static_cast<int>(image.height);
    for (int y = dy; y < height + dy; ++y)
        for (int x = dx; x < width + dx; ++x) {
            const bool inside = x >= 0 && x < width && y >= 0 && y < height;
            const int value = inside ? image.pixels[static_cast<std::size_t>(y * width + x)] : 0;
            pixels.push_back(static_cast<float>(value) / 127.5F - 1);
        }
}

}  // namespace

std::vector<uint32_t> epoch_order(std::size_t entries, uint64_t seed, uint64_t epoch) {
    std::vector<uint32_t> order(entries);
    std::iota(order.begin(), order.end(), 0U);
    std::mt19937_64 random = random_of(seed, epoch, uint64_t{entries} << 32);
    digits::shuffle(order, random);
    return order;
}

std::span<const uint32_t> share_of(std::span<const uint32_t> list, std::size_t part,
                                   std::size_t parts) {
    const std::size_t begin = list.size() * part / parts, end = list.size() * (part + 1) / parts;
    return list.subspan(begin, end - begin);
}

Reader::Reader(const RecordSet& records, const ReaderOptions& options)
    : records_(records), options_(options), thread_([this] { read_ahead(); }) {}

Reader::~Reader() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

std::size_t Reader::steps_per_epoch() const {
    return (records_.size() + options_.batch - 1) / options_.batch;
}

const Step& Reader::next() {
    std::unique_lock lock(mutex_);
    // The thread of the reader ends every wait: with a step, with an error, or when its epochs end.
    changed_.wait(lock, [this] { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
        if (failure_) std::rethrow_exception(failure_);
        throw std::logic_error("the reader's epochs are over");
    }
    current_ = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
    return current_;
}

bool Reader::put(Step step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_.size() < options_.steps_ahead || stopped_; });
    ready_.push_back(std::move(step));
    changed_.notify_all();
    return !stopped_;
}

void Reader::read_ahead() {
    std::exception_ptr failure;
    try {
        for (uint64_t epoch = options_.begin_epoch; epoch < options_.end_epoch; ++epoch)
            if (!read_epoch(epoch)) break;
    } catch (...) {
        failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    ended_ = true;
    changed_.notify_all();
}

bool Reader::read_epoch(uint64_t epoch) {
    std::vector<uint32_t> order(records_.size());
    if (options_.training)
        order = epoch_order(records_.size(), options_.seed, epoch);
    else
        std::iota(order.begin(), order.end(), 0U);
    const std::span<const uint32_t> all(order);
    for (std::size_t at = 0; at < all.size(); at += options_.batch)
        if (!put(read_step(all.subspan(at, std::min(options_.batch, all.size() - at)), epoch)))
            return false;
    return true;
}

Step Reader::read_step(std::span<const uint32_t> entries, uint64_t epoch) {
    Step step(options_.devices);
    for (std::size_t d = 0; d < options_.devices; ++d)
        for (const uint32_t entry : share_of(entries, options_.first + d, options_.replicas))
            read_image(entry, epoch, step[d]);
    return step;
}

void Reader::read_image(uint32_t entry, uint64_t epoch, Batch& batch) {
    const uint32_t label = records_.read(entry, file_);
    const auto side = static_cast<uint32_t>(options_.side);
    Grey image;
    try {
        image = decode_png(file_, side * side);
    } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{}: {}; pack images that libpng reads, of {} × {}",
                                             records_.name_of(entry), error.what(), side, side));
    }
    if (image.width != side || image.height != side)
        throw std::runtime_error(fmt::format("{} has {} × {} pixels, the net wants {} × {}",
                                             records_.name_of(entry), image.width, image.height,
                                             side, side));
    if (label >= options_.classes)
        throw std::runtime_error(fmt::format("{} has label {}, the net has {} classes",
                                             records_.name_of(entry), label, options_.classes));
    int dx = 0, dy = 0;
    if (options_.training) {
        const uint64_t moves = random_of(options_.seed, epoch, entry)();
        dx = static_cast<int>(moves % 3) - 1;
        dy = static_cast<int>(moves / 3 % 3) - 1;
    }
    add_moved(image, dx, dy, batch.pixels);
    batch.labels.push_back(label);
    batch.entries.push_back(entry);
}

}  // namespace imagenet_like
