#include "transport/mapped/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"

namespace tutti {
namespace {

constexpr int resize_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

ErrorResult fail_memory(int saved_errno, std::string_view what, std::size_t bytes) {
    switch (saved_errno) {
        case ENOSPC:
        case ENOMEM:
            return ErrorResult({Code::no_memory, nobody, saved_errno,
                                fmt::format("/dev/shm or memory is exhausted: {} of {} bytes: {}",
                                            what, bytes, std::strerror(saved_errno))})
                .advice(
                    "raise the memory limit (docker: --shm-size), or use fewer ranks or rings "
                    "(TUTTI_NRINGS)");
        case EMFILE:
        case ENFILE:
            return wrap(fail_errno(saved_errno, what).value(), "out of file descriptors");
        default:
            return fail_errno(saved_errno, what);
    }
}

// The errors of seccomp filters, and of kernels without memfd_create.
bool is_refusal(int saved_errno) {
    return saved_errno == EPERM || saved_errno == EACCES || saved_errno == ENOSYS;
}

// The same kind of memory, but counted against the size of /dev/shm.
Result<UniqueFd> make_unlinked_file(int memfd_errno) {
    UniqueFd fd(::open("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (!fd)
        return fail(Code::unsupported,
                    "cannot make shared memory: memfd_create: {}, and a file in /dev/shm: {}",
                    std::strerror(memfd_errno), std::strerror(errno))
            .advice(
                "allow memfd_create in the seccomp filter, or mount a /dev/shm that this user "
                "may write to");
    static std::once_flag told;
    std::call_once(told, [&] {
        log::warn(fail(Code::unsupported,
                       "memfd_create: {} (a seccomp filter or an old kernel refuses it): tutti "
                       "makes shared memory from unlinked files in /dev/shm instead",
                       std::strerror(memfd_errno))
                      .advice("make /dev/shm large enough (docker: --shm-size), or allow "
                              "memfd_create in the seccomp filter"));
    });
    return fd;
}

using MemoryId = std::pair<dev_t, ino_t>;
struct MappingTable {
    std::mutex mutex;
    std::map<MemoryId, std::weak_ptr<Mapping>> live;
};

MappingTable& mapping_table() {
    // Never destroyed: threads may still drop mappings while the process exits.
    static auto* table = new MappingTable;
    return *table;
}

void forget_mapping(const MemoryId& id, Mapping* mapping) {
    MappingTable& table = mapping_table();
    {
        const std::lock_guard lock(table.mutex);
        const auto found = table.live.find(id);
        // Another thread may have mapped the same memory again since the last reference was
        // dropped.
        if (found != table.live.end() && found->second.expired()) table.live.erase(found);
    }
    delete mapping;
}

Result<std::shared_ptr<std::byte>> map_once(int fd, const MemoryId& id, std::size_t bytes) {
    MappingTable& table = mapping_table();
    const std::lock_guard lock(table.mutex);
    std::shared_ptr<Mapping> mapping = table.live[id].lock();
    if (!mapping) {
        auto fresh = Mapping::map_shared(fd, bytes);
        if (!fresh) return fail_memory(fresh.error().sys_errno, "mapping shared memory", bytes);
        mapping = {new Mapping(std::move(*fresh)), [id](Mapping* m) { forget_mapping(id, m); }};
        table.live[id] = mapping;
    }
    return std::shared_ptr<std::byte>(mapping, mapping->data());
}

}  // namespace

std::size_t mapped_shared_bytes() {
    MappingTable& table = mapping_table();
    // Destroyed after the lock is released: to drop the last reference takes the lock.
    std::vector<std::shared_ptr<Mapping>> live;
    std::size_t sum = 0;
    const std::lock_guard lock(table.mutex);
    live.reserve(table.live.size());
    for (const auto& [id, mapping] : table.live) {
        if (auto held = mapping.lock()) {
            sum += held->size();
            live.push_back(std::move(held));
        }
    }
    return sum;
}

Result<> back_memory(int fd, std::size_t offset, std::size_t bytes) {
    int failed = 0;
    do {
        failed = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                             static_cast<off_t>(bytes)) == 0
                     ? 0
                     : errno;
    } while (failed == EINTR);
    // If the system has no fallocate for shared memory, the kernel allocates pages on first access.
    if (failed == 0 || failed == EOPNOTSUPP || failed == ENOSYS) return {};
    return fail_memory(failed, "allocating shared memory", bytes);
}

bool release_memory(int fd, std::size_t offset, std::size_t bytes) {
    return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes)) == 0;
}

std::size_t largest_file_bytes() {
    rlimit limit{};
    const bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur : SIZE_MAX;
}

Result<SharedMemory> make_shared_memory(const char* name, std::size_t bytes,
                                        std::size_t backed_bytes) {
    if (bytes > largest_file_bytes())  // else ftruncate would raise SIGXFSZ
        return fail(Code::no_memory,
                    "shared memory of {} bytes is more than the limit of a file's size, {} bytes",
                    bytes, largest_file_bytes())
            .advice("raise the limit of a file's size (ulimit -f)");
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const bool sealable = static_cast<bool>(fd);
    if (!sealable) {
        if (!is_refusal(errno)) return fail_memory(errno, "creating shared memory", bytes);
        TUTTI_ASSIGN(fd, make_unlinked_file(errno));
    }
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
        return fail_memory(errno, "sizing shared memory", bytes);
    if (sealable && ::fcntl(fd.get(), F_ADD_SEALS, resize_seals) != 0)
        return fail_errno(errno, "sealing shared memory");
    if (backed_bytes > 0) TUTTI_TRY(back_memory(fd.get(), 0, backed_bytes));
    TUTTI_ASSIGN(auto data, map_shared_memory(fd.get(), bytes));
    return SharedMemory{std::move(fd), std::move(data)};
}

Result<std::shared_ptr<std::byte>> map_shared_memory(int fd, std::size_t bytes) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) return fail_errno(errno, "a peer's shared memory is not sealable memory");
    struct stat status;
    if (::fstat(fd, &status) != 0) return fail_errno(errno, "asking shared memory for its size");
    // A file in /dev/shm cannot be sealed. Because it has no name, only processes of this user can
    // open it.
    const bool unlinked_file =
        seals == F_SEAL_SEAL && status.st_nlink == 0 && status.st_uid == ::geteuid();
    if ((seals & resize_seals) != resize_seals && !unlinked_file)
        return fail(Code::invalid,
                    "a peer's shared memory could be resized: it has seals {:#x}, not {:#x}", seals,
                    resize_seals)
            .advice("install the same version of tutti on every host");
    if (std::cmp_not_equal(status.st_size, bytes))
        return fail(Code::invalid, "a peer's shared memory has {} bytes, not {}", status.st_size,
                    bytes)
            .advice("install the same version of tutti on every host");
    return map_once(fd, {status.st_dev, status.st_ino}, bytes);
}

}  // namespace tutti
