// Device memory that the devices' library knows in advance, and joining it in advance.
#include <algorithm>

#include "comm/communicator.h"

namespace tutti {
namespace {

// What windows are made of comes in units of this.
constexpr std::size_t device_memory_unit = std::size_t{2} << 20;

}  // namespace

Result<> Communicator::use_device(int device) {
    TUTTI_TRY(may_call());
    TUTTI_TRY(need_driver());
    if (devices_.joined() && devices_.device != device)
        return fail(Code::invalid, "rank {}: the communicator's device is {}, not {}", rank(),
                    devices_.device, device);
    TUTTI_TRY(enter_before_binding(0, limit_ms(-1)));
    return join_devices(device);
}

// Every rank's, in the same order: what makes a window of it is collective.
Result<std::byte*> Communicator::allocate_on_device(std::size_t bytes) {
    if (!devices_.joined() || !devices_.group)
        return fail(Code::unsupported,
                    "rank {}: tutti_mem_alloc_device: the ranks have not joined NCCL: call "
                    "tutti_comm_use_device before",
                    rank());
    TUTTI_TRY(wait_for_idle_device());
    const std::size_t whole = round_up(std::max<std::size_t>(1, bytes), device_memory_unit);
    auto made = devices_.library->allocate(devices_.device, whole);
    // All make a window of it, or none: who has no memory must not leave the others waiting.
    const Result<> begun = begin("mem alloc");
    const auto agreed =
        begun ? all_agree(made.has_value()) : Result<bool>(tl::unexpected(begun.error()));
    const auto give_back = [&] {
        if (made) devices_.library->free(devices_.device, *made);
    };
    if (!made) return wrap(made.error(), fmt::format("rank {}", rank()));
    if (!agreed || !*agreed) {
        give_back();
        if (!agreed) return tl::unexpected(agreed.error());
        return fail(Code::no_memory, "rank {}: another rank has no device memory for {} bytes",
                    rank(), bytes);
    }
    if (auto known = devices_.group->add_memory(*made, whole, true); !known) {
        give_back();
        return wrap(known.error(), fmt::format("rank {}", rank()));
    }
    devices_.memory.push_back({*made, whole, true});
    return *made;
}

Result<> Communicator::add_device_memory(std::byte* data, std::size_t bytes) {
    TUTTI_ASSIGN(const device::MemoryKind kind, memory_of(data));
    if (devices_.joined() && kind.device != devices_.device)
        return fail(Code::invalid, "rank {}: that is {}, the communicator's device is {}", rank(),
                    device::describe(kind), devices_.device);
    if (find_device_memory(data) != devices_.memory.end())
        return fail(Code::invalid, "rank {}: memory that begins there is registered already",
                    rank());
    if (devices_.group) {
        auto known = devices_.group->add_memory(data, bytes, false);
        if (!known) return wrap(known.error(), fmt::format("rank {}", rank()));
    }
    devices_.memory.push_back({data, bytes, false});
    return {};
}

std::vector<Devices::Known>::iterator Communicator::find_device_memory(const std::byte* data) {
    return std::find_if(devices_.memory.begin(), devices_.memory.end(),
                        [&](const Devices::Known& known) { return known.data == data; });
}

// Of the program's own registrations, or of what was handed out; nothing uses it any more.
Result<bool> Communicator::remove_device_memory(std::byte* data, bool handed_out) {
    const auto found = find_device_memory(data);
    if (found == devices_.memory.end()) return false;
    if (found->window != handed_out)
        return fail(Code::invalid, "rank {}: this communicator has not {} memory that begins there",
                    rank(), handed_out ? "handed out" : "registered");
    TUTTI_TRY(wait_for_idle_device());
    if (devices_.group) devices_.group->remove_memory(data);
    if (handed_out) devices_.library->free(devices_.device, data);
    devices_.memory.erase(found);
    return true;
}

// To a group that was joined just now: in the order in which they came.
Result<> Communicator::tell_device_memory() {
    for (const Devices::Known& known : devices_.memory)
        TUTTI_TRY(devices_.group->add_memory(known.data, known.bytes, known.window));
    return {};
}

void Communicator::free_device_memory() {
    for (const Devices::Known& known : devices_.memory) {
        if (devices_.group) devices_.group->remove_memory(known.data);
        if (known.window) devices_.library->free(devices_.device, known.data);
    }
    devices_.memory.clear();
}

}  // namespace tutti
