#include "transports/ucx/segments.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace tutti::ucx {
namespace {

namespace fs = std::filesystem;

// A process fills a file of 4 MiB within milliseconds, so an older file is abandoned.
constexpr std::chrono::seconds oldest_in_use{60};

bool keeps_names() {
    const char* const linked = std::getenv("UCX_POSIX_USE_PROC_LINK");
    const std::string_view value = linked ? linked : "y";
    return value != "y" && value != "yes" && value != "1" && value != "on";
}

/// Whether no other user can create files in the folder.
bool is_ours(const fs::path& folder) {
    struct stat found {};
    return ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
           found.st_uid == ::geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void remove_left(const fs::path& folder) {
    std::error_code failed;
    const auto now = fs::file_time_type::clock::now();
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        std::error_code gone;
        const auto written = fs::last_write_time(at->path(), gone);
        const bool of_ucx = at->path().filename().string().starts_with("ucx_shm_posix_");
        if (!gone && of_ucx && now - written > oldest_in_use) fs::remove(at->path(), gone);
    }
}

}  // namespace

std::string segment_folder(const fs::path& parent) {
    if (keeps_names()) return {};
    const fs::path folder = parent / fmt::format("tutti-ucx-{}", ::geteuid());
    const bool made = ::mkdir(folder.c_str(), 0700) == 0;
    if (!made && !is_ours(folder)) return {};
    // The folder is read-only, or another process has changed it: UCX uses its own place and
    // reports its errors.
    if (::access(folder.c_str(), W_OK | X_OK) != 0) return {};
    remove_left(folder);
    return folder;
}

}  // namespace tutti::ucx
