// Gradients of micro-batches added in pairs, (0 + 1) + (2 + 3), so that as many micro-batches give
// the same bits however they are spread over replicas.
#pragma once

#include <deque>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

class MicroSums {
public:
    MicroSums(std::deque<Group>& buckets, std::vector<Device*> devices)
        : buckets_(buckets), devices_(std::move(devices)) {}
    Result<> allocate(int micro_batches);

    /// After micro-batch number micro, which is not the last: puts the bucket's gradients away.
    Result<> put_away(std::size_t bucket, std::size_t device, int micro);
    /// After the last: adds what was put away to them, where the bucket's sums are made.
    Result<> take_up(std::size_t bucket, std::size_t device, int micro);

    /// Sums back into the bucket, where they are of another type.
    Result<> round(std::size_t bucket, std::size_t device);

private:
    Result<> widen(std::size_t bucket, std::size_t device);
    struct Levels {
        std::vector<DeviceMemory> of;  // level l: a sum of 2^l micro-batches
    };
    Result<> add(std::size_t bucket, std::size_t device, const DeviceMemory& level);

    std::deque<Group>& buckets_;
    std::vector<Device*> devices_;
    std::vector<std::vector<Levels>> levels_;  // by bucket and device
};

}  // namespace tutti::trainer
