// Tensors on memory that the group's transports know in advance, and counts of memory.
#include <tutti/inspect.h>

#include <limits>
#include <memory>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "backend.h"

namespace tutti_torch {
namespace {

constexpr const char* allocation_name = "allocate_tensor";

// Names no communicator, because the group may be gone. In a forked child the library refuses it.
void free_tensor_memory(void* data) {
    (void)tutti_mem_free(nullptr, data);
}

// More than any memory, for the library to refuse, if the product has no room in a size_t.
std::size_t allocated_bytes(int64_t elements, std::size_t element) {
    const auto count = static_cast<std::size_t>(elements);
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    return count > most / element ? most : count * element;
}

}  // namespace

// Takes no lock of the group: tutti_mem_alloc may be called by any thread. The tensor may outlive
// the group.
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
    TORCH_CHECK_VALUE(size >= 0, "tutti ", allocation_name, ": the size is ", size,
                      ". What to do: pass the number of elements, 0 or more");
    TORCH_CHECK_VALUE(
        options.device().is_cpu(), "tutti ", allocation_name, ": cannot allocate memory of ",
        options.device(),
        ". What to do: use torch.empty for devices; tutti allocates host memory only");
    const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
    (void)element_of(type, allocation_name);
    const auto plain = at::TensorOptions(type).device(at::kCPU);
    const std::shared_ptr<Group> whole = group();
    if (size == 0) return at::empty({0}, plain);
    void* data = nullptr;
    check(tutti_mem_alloc(whole->comm(), allocated_bytes(size, c10::elementSize(type)), &data),
          allocation_name);
    std::unique_ptr<void, void (*)(void*)> owned(data, &free_tensor_memory);
    at::Tensor tensor = at::from_blob(data, {size}, &free_tensor_memory, plain);
    (void)owned.release();
    return tensor;
}

std::unordered_map<std::string, uint64_t> Backend::getMemoryStats() {
    const std::shared_ptr<Group> whole = group();
    tutti_memory_stats stats = TUTTI_MEMORY_STATS_INIT;
    const std::lock_guard one_at_a_time(issuing_);
    check(tutti_comm_memory(whole->comm(), &stats), "memory_stats");
    return {
        {"allocated_bytes", stats.allocated_bytes}, {"registered_bytes", stats.registered_bytes},
        {"work_bytes", stats.work_bytes},           {"recorder_bytes", stats.recorder_bytes},
        {"mapped_bytes", stats.mapped_bytes},       {"cell_bytes", stats.cell_bytes}};
}

}  // namespace tutti_torch
