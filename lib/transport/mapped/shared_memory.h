// Anonymous shared memory that is passed to other processes by descriptor and dies with its users.
#pragma once

#include <memory>

#include "base/fd.h"

namespace tutti {

struct SharedMemory {
    UniqueFd fd;
    std::shared_ptr<std::byte> data;
};

/// The limit of this process (ulimit -f), under which shared memory falls too.
std::size_t largest_file_bytes();

/// Zeroed, sealed against shrinking and growing. Only the first backed_bytes take memory now; pages
/// past that must be backed (back_memory) before they are written, or running out of memory would
/// be a SIGBUS instead of an error. no_memory: says what is exhausted. Where memfd_create is
/// refused it is an unlinked file in /dev/shm, which cannot be sealed.
Result<SharedMemory> make_shared_memory(const char* name, std::size_t bytes,
                                        std::size_t backed_bytes);

/// Maps what a peer sent, after checking that it is exactly `bytes` long and that no one can resize
/// it under us, or no other user. One mapping per memory and process: ranks that are threads of one
/// process share it.
Result<std::shared_ptr<std::byte>> map_shared_memory(int fd, std::size_t bytes);

/// Allocates a range's pages.
Result<> back_memory(int fd, std::size_t offset, std::size_t bytes);

/// Gives a range's pages back; they read as zero then. False where the system cannot.
bool release_memory(int fd, std::size_t offset, std::size_t bytes);

}  // namespace tutti
