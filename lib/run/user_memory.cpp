#include "run/user_memory.h"

#include <sys/mman.h>

#include <utility>

#include "os/forks.h"

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

struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* data) const { ::munmap(data, bytes); }
};

// Memory that a communicator has allocated and the program has not freed.
struct AllocatedBlock {
    std::unique_ptr<std::byte, Unmap> pages;
    UserMemory* owner = nullptr;  // nullptr: its communicator was destroyed
};

struct AllocatedBlocks {
    // Guards the map, and keeps the blocks' owners alive. Taken before an owner's own mutex.
    std::mutex mutex;
    std::map<std::byte*, AllocatedBlock> blocks;
};

constinit PerProcess<AllocatedBlocks> blocks_of_process;

}  // namespace

Result<std::byte*> UserMemory::allocate(std::size_t bytes) {
    const bool large = bytes >= huge_page;
    const std::size_t unit = large ? huge_page : page;
    const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), unit);
    // round_up() wraps around for a size that no address space has.
    std::byte* data = whole < bytes ? nullptr : large ? map_huge(whole) : map(whole);
    if (!data)
        return fail_rank(Code::no_memory, rank_, "tutti_mem_alloc: no memory for {} bytes", bytes);
    AllocatedBlock block{{data, Unmap{whole}}, this};
    TUTTI_TRY(register_range(data, whole));
    AllocatedBlocks& all = blocks_of_process.here();
    const std::lock_guard all_lock(all.mutex);
    const std::lock_guard lock(mutex_);
    all.blocks[data] = std::move(block);
    ranges_[data] = {whole, true};
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
        if (!ranges_.try_emplace(data, KnownRange{bytes, false}).second)
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
    return data ? free_block(data, this) : Result<>{};
}

Result<> UserMemory::free_of_any(std::byte* data) {
    return data ? free_block(data, nullptr) : Result<>{};
}

// named: the owner according to the caller; nullptr: the caller names none.
Result<> UserMemory::free_block(std::byte* data, const UserMemory* named) {
    AllocatedBlocks& all = blocks_of_process.here();
    AllocatedBlock freed;  // unmapped after the lock is released
    const std::lock_guard lock(all.mutex);
    const auto found = all.blocks.find(data);
    if (found == all.blocks.end())
        return fail(Code::invalid, "tutti_mem_free: {} has not allocated memory at {}",
                    named ? "this communicator" : "tutti_mem_alloc of this process",
                    static_cast<const void*>(data))
            .advice(
                "pass a pointer from tutti_mem_alloc, once, and for memory of "
                "tutti_mem_alloc_device its communicator");
    UserMemory* const owner = found->second.owner;
    if (named && owner != named)
        return fail(Code::invalid,
                    "tutti_mem_free: this communicator has not allocated memory at {}; {} has",
                    static_cast<const void*>(data),
                    owner ? "another communicator of this process"
                          : "a communicator that was destroyed")
            .advice("pass the communicator that allocated it, or NULL, which stands for any");
    if (owner) owner->take_back(data, true);
    freed = std::move(found->second);
    all.blocks.erase(found);
    return {};
}

Result<> UserMemory::remove(std::byte* data) {
    if (take_back(data, false)) return {};
    return fail(Code::invalid,
                "tutti_mem_deregister: this communicator has not registered memory at {}",
                static_cast<const void*>(data))
        .advice("pass a pointer from tutti_mem_register of the same communicator, once");
}

// Ends the registration of memory that allocate(), or else add(), has registered. False: there is
// none at that address.
bool UserMemory::take_back(std::byte* data, bool allocated) {
    Ranges::node_type range;
    {
        const std::lock_guard lock(mutex_);
        const auto found = ranges_.find(data);
        if (found == ranges_.end() || found->second.allocated != allocated) return false;
        range = ranges_.extract(found);
    }
    forget(data, range.mapped().bytes, transports_.size());
    return true;
}

UserMemory::Bytes UserMemory::bytes() const {
    Bytes sum;
    const std::lock_guard lock(mutex_);
    for (const auto& [data, range] : ranges_)
        (range.allocated ? sum.allocated : sum.registered) += range.bytes;
    return sum;
}

// In a forked child the blocks stay with the parent's table, which the child does not use.
void UserMemory::clear() {
    AllocatedBlocks& all = blocks_of_process.here();
    const std::lock_guard all_lock(all.mutex);
    const std::lock_guard lock(mutex_);
    for (const auto& [data, range] : ranges_) {
        forget(data, range.bytes, transports_.size());
        if (const auto found = all.blocks.find(data); found != all.blocks.end())
            found->second.owner = nullptr;
    }
    ranges_.clear();
}

}  // namespace tutti
