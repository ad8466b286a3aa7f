// The layout of memory: groups of buffers that collectives move, and arenas that buffers share.
#pragma once

#include <vector>

#include "trainer/device/device.h"
#include "trainer/plan/program.h"

namespace tutti::trainer {

/// Buffers that lie one after the other, at the same offsets on every device, so that one
/// collective moves them. Gaps between them are and stay zero.
struct BufferGroup {
    std::string name;
    tutti_dtype dtype = TUTTI_FLOAT32;
    std::vector<std::vector<int>> members;  // by device
    std::size_t bytes = 0;
    std::vector<DeviceAllocation> memory;  // by device
    std::vector<DeviceAllocation>
        wide;  // by device: float32 sums of a 16-bit type, if the layer adds

    std::size_t count() const { return bytes / tutti_dtype_size(dtype); }
    std::vector<void*> pointers() const;
    std::vector<int> all_members() const;
    /// The memory and the type in which the layer adds.
    void* sums(std::size_t device) const {
        return wide.empty() ? memory[device].data() : wide[device].data();
    }
    tutti_dtype sums_dtype() const { return wide.empty() ? dtype : sum_dtype(dtype); }
    std::size_t sums_bytes() const { return count() * tutti_dtype_size(sums_dtype()); }
};

/// A node that reads and writes a group's members on a device; none: on all.
ProgramNode group_node(const BufferGroup& group, const std::string& name, int device);

struct BucketSizes {
    std::size_t bytes = 0;
    std::size_t first_bytes = 0;
};

/// Buckets of the gradients that are reduced, last declared first. The first bucket is smaller, so
/// that the reduction begins early. A bucket has one dtype.
std::vector<BufferGroup> make_buckets(const ModelRecorder& recorder, const BucketSizes& sizes);
/// The buffers of a kind that are synchronised, a group for each dtype.
std::vector<BufferGroup> make_groups(const ModelRecorder& recorder, tutti_buffer_kind kind);

/// Gives a group its memory and its members their addresses.
Result<> place_group(BufferGroup& group, ModelRecorder& recorder,
                     const std::vector<Device*>& devices, std::size_t alignment);

/// Gives a group of a 16-bit type room for sums.
Result<> place_sums(BufferGroup& group, const std::vector<Device*>& devices);

struct Lifetime {
    int buffer = none;
    int first = 0, last = 0;  // nodes
};
/// Assigns offsets such that buffers with overlapping lifetimes do not overlap: the largest first,
/// each at the lowest free offset. Returns the total bytes.
std::size_t pack(const ModelRecorder& recorder, const std::vector<Lifetime>& lifetimes,
                 std::size_t alignment, std::vector<std::size_t>& offsets);
/// First and last use of each shareable buffer of the device; unused ones are left out.
std::vector<Lifetime> lifetimes_of(const Program& program, const ModelRecorder& recorder,
                                   int device, const std::vector<bool>& shareable);

constexpr std::size_t round_up(std::size_t bytes, std::size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace tutti::trainer
