// Gradients of micro-batches added in pairs, (0 + 1) + (2 + 3), so that as many micro-batches give
// the same bits however they are spread over replicas.
#pragma once

#include <deque>
#include <vector>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

/// Each micro-batch of a step stores its gradients in sums, and the last one adds the sums to its
/// own gradients.
class MicroSums {
public:
    MicroSums(std::deque<BufferGroup>& buckets, const std::vector<Device*>& devices,
              int micro_batches)
        : buckets_(buckets), devices_(devices), micro_batches_(micro_batches) {}

    /// Appends the nodes that store a micro-batch's gradients.
    void append_stores(Program& micro);
    /// Appends the nodes of the last micro-batch. rounds: the sums become the gradients, as no
    /// collective does that.
    void append_sums(Program& last, bool rounds);
    /// The buckets have their memory.
    Result<> allocate();

private:
    /// After micro-batch number micro, which is not the last.
    Result<> store(std::size_t bucket, std::size_t device, int micro);
    /// After the last one, number micro: makes the bucket's sums of all micro-batches.
    Result<> add_stored(std::size_t bucket, std::size_t device, int micro);
    /// add_stored, and the sums back into the bucket where they are of another type.
    Result<> add_stored_and_round(std::size_t bucket, std::size_t device, int micro);
    using BucketFunction = Result<> (MicroSums::*)(std::size_t, std::size_t, int);
    void append_nodes(Program& program, BucketFunction function);
    Result<> widen(std::size_t bucket, std::size_t device);
    struct Levels {
        std::vector<DeviceAllocation> of;  // level l: a sum of 2^l micro-batches
    };
    Result<> add(std::size_t bucket, std::size_t device, const DeviceAllocation& level);

    std::deque<BufferGroup>& buckets_;
    const std::vector<Device*>& devices_;
    int micro_batches_;
    std::vector<std::vector<Levels>> levels_;  // by bucket and device
};

}  // namespace tutti::trainer
