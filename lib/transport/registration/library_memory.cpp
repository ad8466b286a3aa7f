#include "transport/registration/library_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/log.h"

namespace tutti {
namespace {

std::unique_ptr<MemoryMonitor> start_monitor(std::string_view library) {
    auto monitor = MemoryMonitor::start();
    if (monitor) return std::move(*monitor);
    log::info("{} registers memory anew for each use: {}", library, monitor.error().message);
    return nullptr;
}

}  // namespace

void Registered::release_entry() {
    RegistrationCache::Entry* const entry = std::exchange(entry_, nullptr);
    if (memory_->cache_) memory_->cache_->release(entry);
}

LibraryMemory::LibraryMemory(MemoryRegistrar* registrar, std::string_view library) {
    if (!registrar) return;
    monitor_ = start_monitor(library);
    cache_ = std::make_unique<RegistrationCache>(
        RegistrationCache::Options{.registrar = registrar, .watch = monitor_.get()});
}

Result<> LibraryMemory::add(const std::byte* data, std::size_t bytes) {
    return cache_ ? cache_->add(data, bytes) : Result<>{};
}

void LibraryMemory::remove(const std::byte* data, std::size_t bytes) {
    if (cache_) cache_->remove(data, bytes);
}

Result<RegisteredBlock> RegisteredBlock::make(LibraryMemory& memory, std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return fail_errno(errno, "cannot map memory for messages");
    RegisteredBlock block(static_cast<std::byte*>(data), bytes);
    TUTTI_ASSIGN(block.registered_, memory.use(block.data_, bytes));
    return block;
}

RegisteredBlock::~RegisteredBlock() {
    registered_ = {};
    if (data_) ::munmap(data_, bytes_);
}

}  // namespace tutti
