// The memory of a model's buffers on this process's devices.
#pragma once

#include <deque>
#include <vector>

#include "trainer/plan/layout.h"

namespace tutti::trainer {

struct MemoryOptions {
    std::size_t alignment = 1;
    bool shares = false;  // activations and their gradients take turns in the same memory
    bool sums = false;    // buckets of a 16-bit type have room for their sums
};

/// Owns the memory of all buffers. Buffers that one collective moves lie in one group, the others
/// in one arena per device. Groups do not move: other objects keep references to them.
class ModelMemory {
public:
    ModelMemory(ModelRecorder& recorder, const std::vector<Device*>& devices, MemoryOptions options)
        : recorder_(recorder), devices_(devices), options_(options) {}

    /// Forms the groups of parameters, computed buffers and state.
    void form_groups();
    void form_buckets(const BucketSizes& sizes);
    /// Uses the parameters and computed buffers of the other model, in that model's memory: they
    /// form no groups here.
    Result<> adopt_parameters(const ModelRecorder& from);
    /// Gives each buffer its address, and learning rates their first values. Buffers share memory
    /// if the program uses them at different times.
    Result<> place(const Program& program);

    std::deque<BufferGroup>& parameters() { return parameters_; }
    std::deque<BufferGroup>& computed() { return computed_; }
    std::deque<BufferGroup>& buckets() { return buckets_; }
    /// The groups that are synchronised and saved.
    std::vector<BufferGroup*> kept_groups();
    int bucket_count() const { return static_cast<int>(buckets_.size()); }
    /// The bytes in use on the device with the most.
    std::size_t device_bytes() const;

private:
    std::vector<bool> shareable_buffers() const;
    Result<> place_arena(const Program& program, int device, const std::vector<bool>& shareable);
    Result<> write_initial_values();

    ModelRecorder& recorder_;
    const std::vector<Device*>& devices_;
    MemoryOptions options_;
    std::deque<BufferGroup> parameters_, computed_, state_, buckets_;
    std::vector<DeviceAllocation> arenas_;  // by device
};

}  // namespace tutti::trainer
