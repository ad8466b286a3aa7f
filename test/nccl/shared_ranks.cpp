#include "nccl/shared_ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace fake_nccl {
namespace {

constexpr std::size_t table_bytes = (sizeof(Table) + 4095) / 4096 * 4096;

}  // namespace

std::string SharedRanks::make() {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder ? folder : "/tmp") + "/tutti-fake-nccl-XXXXXX";
    const int fd = ::mkstemp(path.data());
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(table_bytes + most_ranks * area_bytes)) != 0)
        std::abort();
    ::close(fd);
    return path;
}

SharedRanks::SharedRanks(const std::string& path, int rank, int size)
    : path_(path), rank_(rank), size_(size), mapped_(table_bytes + most_ranks * area_bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) std::abort();
    void* all = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    table_ = static_cast<Table*>(all);
    areas_ = static_cast<std::byte*>(all) + table_bytes;
}

SharedRanks::~SharedRanks() {
    own().left = 1;
    ::munmap(table_, mapped_);
    // Gone with the first that leaves: the others have it mapped.
    ::unlink(path_.c_str());
}

}  // namespace fake_nccl
