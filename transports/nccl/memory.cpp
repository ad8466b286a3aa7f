#include "transports/nccl/memory.h"

namespace tutti::nccl {
namespace {

constexpr int symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC

}  // namespace

Result<> KnownMemory::add(std::byte* memory, std::size_t bytes, bool window) {
    const Library& library = membership_->library();
    const bool windows = window && library.window_register && library.window_deregister;
    if (!windows && (!library.comm_register || !library.comm_deregister)) return {};
    const device::Context::Scope current(membership_->context());
    RegisteredWindows known{windows, {}};
    for (std::size_t ring = 0; ring < membership_->rings(); ++ring) {
        const auto told = membership_->ask_handle(
            ring, "registering device memory", [&](Comm comm, void** handle) {
                return windows ? library.window_register(comm, memory, bytes, handle, symmetric)
                               : library.comm_register(comm, memory, bytes, handle);
            });
        if (!told) {
            // NCCL may still be registering the memory, which the caller is about to free.
            if (told.error().code == Code::timeout) membership_->stop();
            forget(known);
            return tl::unexpected(told.error());
        }
        known.handles.push_back(*told);
    }
    const std::lock_guard lock(mutex_);
    known_[memory] = std::move(known);
    return {};
}

void KnownMemory::forget(const RegisteredWindows& known) {
    const Library& library = membership_->library();
    const device::Context::Scope current(membership_->context());
    for (std::size_t ring = 0; ring < known.handles.size(); ++ring)
        (void)membership_->ask(ring, "forgetting device memory", [&](Comm comm) {
            return known.window ? library.window_deregister(comm, known.handles[ring])
                                : library.comm_deregister(comm, known.handles[ring]);
        });
}

void KnownMemory::remove(std::byte* memory) {
    std::map<std::byte*, RegisteredWindows>::node_type node;
    {
        const std::lock_guard lock(mutex_);
        node = known_.extract(memory);
    }
    if (!node.empty()) forget(node.mapped());
}

void KnownMemory::clear() {
    std::map<std::byte*, RegisteredWindows> all;
    {
        const std::lock_guard lock(mutex_);
        all.swap(known_);
    }
    for (const auto& [memory, known] : all) forget(known);
}

}  // namespace tutti::nccl
