// Divides the images of an epoch among replicas and steps; a thread decodes them in advance.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "records.h"

namespace imagenet_like {

/// The entries of one epoch, each once, in an order that follows from seed and epoch alone.
std::vector<uint32_t> epoch_order(std::size_t entries, uint64_t seed, uint64_t epoch);

/// Part number `part` of a list that is divided into `parts` parts. Together they have each item
/// once, and their sizes differ by one at most.
std::span<const uint32_t> share_of(std::span<const uint32_t> list, std::size_t part,
                                   std::size_t parts);

/// The images that one device reads in one step.
struct Batch {
    std::vector<float> pixels;  // images × side × side, about 0
    std::vector<int64_t> labels;
    std::vector<uint32_t> entries;
};
/// One batch for each device of this process.
using Step = std::vector<Batch>;

struct ReaderOptions {
    std::size_t side = 8;      // of the images
    std::size_t classes = 10;  // labels are smaller
    std::size_t batch = 64;    // of all replicas
    std::size_t replicas = 1;  // of all ranks
    std::size_t first = 0;     // this process's first replica
    std::size_t devices = 1;   // of this process
    uint64_t seed = 1;
    uint64_t begin_epoch = 0;  // until end_epoch
    uint64_t end_epoch = 1;
    bool training = true;  // shuffled, and each image moved a little
    std::size_t steps_ahead = 4;
};

/// Hands out the steps of one epoch after another. For any number of replicas, a global batch has
/// the same images with the same changes.
class Reader {
public:
    /// records outlives the reader.
    Reader(const RecordSet& records, const ReaderOptions& options);
    ~Reader();
    Reader(const Reader&) = delete;

    std::size_t steps_per_epoch() const;
    /// The next step, valid until the next call. Throws the reader's error, with file and entry.
    const Step& next();

private:
    void read_ahead();
    bool read_epoch(uint64_t epoch);  // false: stopped
    Step read_step(std::span<const uint32_t> entries, uint64_t epoch);
    void read_image(uint32_t entry, uint64_t epoch, Batch& batch);
    bool put(Step step);  // false: stopped

    const RecordSet& records_;
    const ReaderOptions options_;
    Bytes file_;  // only the thread uses it
    Step current_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Step> ready_;
    std::exception_ptr failure_;
    bool ended_ = false;    // the thread adds no more steps
    bool stopped_ = false;  // the destructor tells the thread to end
    std::thread thread_;
};

}  // namespace imagenet_like
