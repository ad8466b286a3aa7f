// The folder for the files of UCX's shared memory.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::ucx {

/// A folder of this user's for files that UCX makes, fills and unlinks at once. A process that is
/// killed in between leaves its file; this removes files older than that takes. Empty: there is no
/// such folder, or the files must keep their names (UCX_POSIX_USE_PROC_LINK).
std::string segment_folder(const std::filesystem::path& parent = "/dev/shm");

}  // namespace tutti::ucx
