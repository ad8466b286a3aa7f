#include "base/fd.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

void UniqueFd::reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    if (this != &other) {
        if (data_) ::munmap(data_, bytes_);
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
}

Mapping::~Mapping() {
    if (data_) ::munmap(data_, bytes_);
}

Result<Mapping> Mapping::map_shared(int fd, std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail_errno(errno, fmt::format("cannot map {} bytes of shared memory", bytes));
    Mapping mapping;
    mapping.data_ = static_cast<std::byte*>(data);
    mapping.bytes_ = bytes;
    return mapping;
}

}  // namespace tutti
