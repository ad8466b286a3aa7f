// The folder for the files of UCX's shared memory.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::ucx {

/// A folder of this user's for files that UCX makes, fills and unlinks at once: a process that is
/// killed in between leaves one. What is older than that takes is removed here. Empty: there is no
/// such folder, or the files are to keep their names (UCX_POSIX_USE_PROC_LINK).
std::string segment_folder(const std::filesystem::path& parent = "/dev/shm");

}  // namespace tutti::ucx
