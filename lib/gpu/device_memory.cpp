#include "gpu/device_memory.h"

#include <algorithm>

namespace tutti {
namespace {

// Memory for windows is allocated in multiples of this.
constexpr std::size_t device_memory_unit = std::size_t{2} << 20;

}  // namespace

// All ranks allocate in the same order, because the registration of a window is collective.
Result<std::byte*> DeviceMemory::allocate(std::size_t bytes) {
    if (!side_.devices.joined() || !side_.devices.group)
        return fail(Code::unsupported, "the ranks of this communicator have not joined NCCL")
            .advice("call tutti_comm_use_device on every rank first, without TUTTI_DEVICE=staged");
    TUTTI_TRY(side_.wait_for_idle());
    const std::size_t whole = round_up(std::max<std::size_t>(1, bytes), device_memory_unit);
    auto made = side_.devices.library->allocate(side_.devices.device, whole);
    // All ranks make the window or none does: a rank without memory must not leave the others
    // waiting.
    const Result<> begun = side_.issuer.begin("mem alloc");
    const auto agreed = begun ? side_.issuer.all_agree(made.has_value())
                              : Result<bool>(tl::unexpected(begun.error()));
    const auto give_back = [&] {
        if (made) side_.devices.library->free(side_.devices.device, *made);
    };
    if (!made) return tl::unexpected(made.error());
    if (!agreed || !*agreed) {
        give_back();
        if (!agreed) return tl::unexpected(agreed.error());
        return fail(Code::no_memory, "another rank has no device memory for {} bytes", bytes)
            .advice("free memory of the GPUs, or allocate less, and call again on every rank");
    }
    if (auto known = side_.devices.group->add_memory(*made, whole, true); !known) {
        give_back();
        return tl::unexpected(known.error());
    }
    side_.devices.memory.push_back({*made, whole, true});
    return *made;
}

Result<> DeviceMemory::add(std::byte* data, std::size_t bytes) {
    TUTTI_ASSIGN(const device::MemoryKind kind, side_.memory_of(data));
    if (side_.devices.joined() && kind.device != side_.devices.device)
        return fail(Code::invalid, "the memory is {}, but the communicator's device is {}",
                    device::describe(kind), side_.devices.device)
            .advice("register memory of device {}", side_.devices.device);
    if (find(data) != side_.devices.memory.end())
        return fail(Code::invalid, "memory that begins at {} is registered already",
                    static_cast<const void*>(data))
            .advice("call tutti_mem_deregister before you register it again");
    if (side_.devices.group) {
        TUTTI_TRY(side_.devices.group->add_memory(data, bytes, false));
    }
    side_.devices.memory.push_back({data, bytes, false});
    return {};
}

std::vector<Devices::RegisteredMemory>::iterator DeviceMemory::find(const std::byte* data) {
    return std::find_if(side_.devices.memory.begin(), side_.devices.memory.end(),
                        [&](const Devices::RegisteredMemory& known) { return known.data == data; });
}

// Removes memory of allocate() (handed_out) or of add(). No operation may be using it.
Result<bool> DeviceMemory::remove(std::byte* data, bool handed_out) {
    const auto found = find(data);
    if (found == side_.devices.memory.end()) return false;
    if (found->window != handed_out)
        return fail(Code::invalid, "this communicator has not {} memory that begins at {}",
                    handed_out ? "allocated" : "registered", static_cast<const void*>(data))
            .advice(
                "free memory of tutti_mem_alloc_device by tutti_mem_free, and registered memory "
                "by tutti_mem_deregister");
    TUTTI_TRY(side_.wait_for_idle());
    if (side_.devices.group) side_.devices.group->remove_memory(data);
    if (handed_out) side_.devices.library->free(side_.devices.device, data);
    side_.devices.memory.erase(found);
    return true;
}

}  // namespace tutti
