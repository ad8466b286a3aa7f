#include "run/user_memory.h"

#include <sys/mman.h>

#include <cerrno>

namespace tutti {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2 * 1024 * 1024;

std::byte* map(std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// A huge page begins at a multiple of its size: map with room to spare, then unmap the spare.
std::byte* map_huge(std::size_t bytes) {
    std::byte* wide = map(bytes + huge_page);
    if (!wide) return nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(wide);
    const std::size_t before = round_up(address, huge_page) - address;
    if (before > 0) ::munmap(wide, before);
    ::munmap(wide + before + bytes, huge_page - before);
    ::madvise(wide + before, bytes, MADV_HUGEPAGE);  // a hint: it may fail
    return wide + before;
}

}  // namespace

void Unmap::operator()(std::byte* data) const {
    ::munmap(data, bytes);
}

Result<std::byte*> UserMemory::allocate(std::size_t bytes) {
    const bool large = bytes >= huge_page;
    const std::size_t unit = large ? huge_page : page;
    const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), unit);
    // round_up() wraps around for a size that no address space has.
    std::byte* data = whole < bytes ? nullptr : large ? map_huge(whole) : map(whole);
    if (!data)
        return fail_rank(Code::no_memory, rank_, "tutti_mem_alloc: no memory for {} bytes", bytes);
    std::unique_ptr<std::byte, Unmap> owned(data, Unmap{whole});
    TUTTI_TRY(register_range(data, whole));
    const std::lock_guard lock(mutex_);
    ranges_[data] = {whole, std::move(owned)};
    return data;
}

Result<> UserMemory::add(std::byte* data, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(data) + bytes < bytes)
        return fail(Code::invalid,
                    "tutti_mem_register: {} bytes from {} run past the end of memory", bytes,
                    static_cast<const void*>(data))
            .advice("give the size of the memory in bytes, as it was allocated");
    {
        const std::lock_guard lock(mutex_);
        if (!ranges_.try_emplace(data, KnownRange{bytes, nullptr}).second)
            return fail(Code::invalid, "tutti_mem_register: the memory at {} is registered already",
                        static_cast<const void*>(data))
                .advice("use it as it is, or call tutti_mem_deregister first");
    }
    auto registered = register_range(data, bytes);
    if (registered) return {};
    const std::lock_guard lock(mutex_);
    ranges_.erase(data);
    return registered;
}

Result<> UserMemory::register_range(std::byte* data, std::size_t bytes) {
    for (std::size_t i = 0; i < transports_.size(); ++i) {
        auto added = transports_[i]->add_memory(data, bytes);
        if (added) continue;
        forget(data, bytes, i);
        return wrap(std::move(added).error(),
                    fmt::format("registering {} bytes with {}", bytes, transports_[i]->name()));
    }
    return {};
}

void UserMemory::forget(std::byte* data, std::size_t bytes, std::size_t transports) {
    for (std::size_t i = 0; i < transports; ++i) transports_[i]->remove_memory(data, bytes);
}

Result<> UserMemory::free(std::byte* data) {
    if (!data) return {};
    return take_back(data, true);
}

Result<> UserMemory::remove(std::byte* data) {
    return take_back(data, false);
}

Result<> UserMemory::take_back(std::byte* data, bool owned) {
    Ranges::node_type node;
    {
        const std::lock_guard lock(mutex_);
        const auto found = ranges_.find(data);
        if (found == ranges_.end() || owned != (found->second.owned != nullptr))
            return fail(Code::invalid, "{}: this communicator has not {} memory at {}",
                        owned ? "tutti_mem_free" : "tutti_mem_deregister",
                        owned ? "allocated" : "registered", static_cast<const void*>(data))
                .advice("pass a pointer from {} of the same communicator, once",
                        owned ? "tutti_mem_alloc" : "tutti_mem_register");
        node = ranges_.extract(found);
    }
    forget(data, node.mapped().bytes, transports_.size());
    return {};
}

void UserMemory::clear() {
    const std::lock_guard lock(mutex_);
    for (const auto& [data, range] : ranges_) forget(data, range.bytes, transports_.size());
    ranges_.clear();
}

}  // namespace tutti
