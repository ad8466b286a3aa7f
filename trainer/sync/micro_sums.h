// Adds gradients of micro-batches in pairs, (0 + 1) + (2 + 3), so that the bits depend only on the
// total number of micro-batches, not on their distribution over replicas.
#pragma once

#include <deque>
#include <vector>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

/// After each micro-batch of a step but the last, the nodes add its gradients to stored sums. After
/// the last one they add all stored sums to its gradients.
class MicroSums {
public:
    MicroSums(std::deque<BufferGroup>& buckets, const std::vector<Device*>& devices,
              int micro_batches)
        : buckets_(buckets), devices_(devices), micro_batches_(micro_batches) {}

    /// Appends the nodes that store a micro-batch's gradients.
    void append_stores(Program& micro);
    /// Appends the nodes of the last micro-batch. rounds: the nodes also round the sums into the
    /// gradients; false if the bucket's allreduce follows, which does that itself.
    void append_sums(Program& last, bool rounds);
    /// Allocates the levels, once the buckets have memory.
    Result<> allocate();

private:
    /// Runs after micro-batch number micro (from 0), which is not the last: adds its gradients to
    /// the levels.
    Result<> store(std::size_t bucket, std::size_t device, int micro);
    /// Runs after the last one, number micro: the bucket's sums are then those of all
    /// micro-batches.
    Result<> add_stored(std::size_t bucket, std::size_t device, int micro);
    /// The same, then rounds the sums into the gradients if their types differ.
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
