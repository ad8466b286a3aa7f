#include "os/library_fds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tutti {
namespace {

constexpr std::string_view epoll_link = "anon_inode:[eventpoll]";

std::vector<int> open_now() {
    std::vector<int> out;
    std::error_code failed;
    for (std::filesystem::directory_iterator at("/proc/self/fd", failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename();
        int fd = -1;
        std::from_chars(name.data(), name.data() + name.size(), fd);
        if (fd >= 0) out.push_back(fd);
    }
    return out;
}

/// "socket:[4711]"; empty: the descriptor is closed.
std::string link_of(int fd) {
    std::array<char, 64> text{};
    const ssize_t bytes =
        ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

void close_on_exec(int fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

/// The descriptors that an epoll watches, if they still have the numbers under which they were
/// added.
std::vector<int> watched_by(int epoll) {
    std::vector<int> out;
    std::ifstream lines(fmt::format("/proc/self/fdinfo/{}", epoll));
    for (std::string line; std::getline(lines, line);) {
        int fd = -1;
        const std::size_t inode_at = line.find("ino:");
        if (std::sscanf(line.c_str(), "tfd: %d", &fd) != 1 || inode_at == std::string::npos)
            continue;
        unsigned long inode = 0;
        const char* const text = line.c_str() + inode_at + 4;
        std::from_chars(text, line.c_str() + line.size(), inode, 16);
        // The library may close the descriptor meanwhile on another thread: then statx() fails, or
        // finds another inode. Not fstat(), which the thread sanitizer counts as a use of the file.
        struct statx found {};
        if (::statx(fd, "", AT_EMPTY_PATH, STATX_INO, &found) == 0 && found.stx_ino == inode)
            out.push_back(fd);
    }
    return out;
}

}  // namespace

LibraryFds::LibraryFds() : before_(open_now()) {}

void LibraryFds::take_new() {
    for (const int fd : open_now()) {
        if (std::find(before_.begin(), before_.end(), fd) != before_.end()) continue;
        const std::string link = link_of(fd);
        const bool unnamed = link.starts_with("socket:") || link.starts_with("pipe:") ||
                             link.starts_with("anon_inode:");
        if (unnamed) close_on_exec(fd);
        if (link == epoll_link) polls_.push_back(fd);
    }
    before_.clear();
}

void LibraryFds::mark() const {
    std::vector<int> polls = polls_;
    for (std::size_t i = 0; i < polls.size(); ++i) {
        for (const int fd : watched_by(polls[i])) {
            close_on_exec(fd);
            const bool seen = std::find(polls.begin(), polls.end(), fd) != polls.end();
            if (!seen && link_of(fd) == epoll_link) polls.push_back(fd);
        }
    }
}

}  // namespace tutti
