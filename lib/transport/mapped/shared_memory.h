// Anonymous shared memory that is passed to other processes by descriptor and dies with its users.
#pragma once

#include <memory>

#include "base/fd.h"

namespace tutti {

struct SharedMemory {
    UniqueFd fd;
    std::shared_ptr<std::byte> data;
};

/// The process's limit on the size of a file (ulimit -f), which applies to shared memory too.
std::size_t largest_file_bytes();

/// Zeroed, sealed against shrinking and growing. Only the first backed_bytes take memory now. Back
/// later pages (back_memory) before writing them, else running out of memory is a SIGBUS instead of
/// an error. no_memory: the error names the exhausted resource. If the system refuses memfd_create,
/// the memory is an unlinked file in /dev/shm, which cannot be sealed.
Result<SharedMemory> make_shared_memory(const char* name, std::size_t bytes,
                                        std::size_t backed_bytes);

/// Maps memory that a peer sent, after checking that it is exactly `bytes` long and that no
/// process, or no other user, can resize it. One mapping per memory and process: ranks that are
/// threads of one process share it.
Result<std::shared_ptr<std::byte>> map_shared_memory(int fd, std::size_t bytes);

/// The bytes of all such memory that this process maps now, its own and its peers'. Pages that
/// nobody has backed or written take no memory.
std::size_t mapped_shared_bytes();

/// Allocates a range's pages.
Result<> back_memory(int fd, std::size_t offset, std::size_t bytes);

/// Gives a range's pages back; they read as zero then. False: the system cannot.
bool release_memory(int fd, std::size_t offset, std::size_t bytes);

}  // namespace tutti
