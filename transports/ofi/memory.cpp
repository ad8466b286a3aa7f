#include "transports/ofi/memory.h"

#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>

#include "base/log.h"

namespace tutti::ofi {
namespace {

uint64_t locked_limit_bytes() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return ~uint64_t{0};
    return limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
}

std::unique_ptr<MemoryMonitor> start_monitor() {
    auto monitor = MemoryMonitor::start();
    if (monitor) return std::move(*monitor);
    log::info("libfabric: memory is registered anew for each use: {}", monitor.error().message);
    return nullptr;
}

}  // namespace

std::string registration_failure(std::size_t bytes, long code, uint64_t limit_bytes) {
    std::string text = fmt::format("registering {} bytes of memory: {}", bytes, reason(code));
    const bool may_be_limit = code == -FI_ENOMEM || code == -FI_EAGAIN || code == -FI_EPERM;
    if (may_be_limit && limit_bytes != ~uint64_t{0})
        text += fmt::format("; this process may lock {} KiB (`ulimit -l`): raise that limit",
                            limit_bytes / 1024);
    return text;
}

Memory::Memory(const Objects& objects, bool force)
    : objects_(objects), mr_mode_(objects.info->domain_attr->mr_mode) {
    if (!force && (mr_mode_ & FI_MR_LOCAL) == 0) return;
    monitor_ = start_monitor();
    cache_ = std::make_unique<RegistrationCache>(
        RegistrationCache::Options{.registrar = this, .watch = monitor_.get()});
}

Result<Registered> Memory::use(const std::byte* data, std::size_t bytes) {
    if (!cache_) return Registered();
    TUTTI_ASSIGN(RegistrationCache::Entry* const entry, cache_->acquire(data, bytes));
    return Registered(cache_.get(), entry);
}

Result<> Memory::add(const std::byte* data, std::size_t bytes) {
    return cache_ ? cache_->add(data, bytes) : Result<>{};
}

void Memory::remove(const std::byte* data, std::size_t bytes) {
    if (cache_) cache_->remove(data, bytes);
}

Result<void*> Memory::register_memory(std::byte* data, std::size_t bytes) {
    const uint64_t key = (mr_mode_ & FI_MR_PROV_KEY) != 0 ? 0 : next_key_++;
    fid_mr* region = nullptr;
    int code = fi_mr_reg(objects_.domain.get(), data, bytes, FI_SEND | FI_RECV, 0, key, 0, &region,
                         nullptr);
    if (code == 0 && (mr_mode_ & FI_MR_ENDPOINT) != 0) {
        code = fi_mr_bind(region, &objects_.endpoint->fid, 0);
        if (code == 0) code = fi_mr_enable(region);
        if (code != 0) fi_close(&region->fid);
    }
    if (code == 0) return region;
    return fail(Code::no_memory, "libfabric ({}): {}", objects_.provider(),
                registration_failure(bytes, code, locked_limit_bytes()));
}

void Memory::deregister(void* handle) {
    fi_close(&static_cast<fid_mr*>(handle)->fid);
}

Result<RegisteredBlock> RegisteredBlock::make(Memory& memory, std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return fail_errno(errno, "memory for messages");
    RegisteredBlock block(static_cast<std::byte*>(data), bytes);
    TUTTI_ASSIGN(block.registered_, memory.use(block.data_, bytes));
    return block;
}

RegisteredBlock::~RegisteredBlock() {
    registered_ = {};
    if (data_) ::munmap(data_, bytes_);
}

}  // namespace tutti::ofi
