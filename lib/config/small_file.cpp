#include "config/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/log.h"

namespace tutti {
namespace {

ErrorResult unreadable(const std::string& path) {
    return fail(Code::invalid, "the file '{}' cannot be read: {}", path, std::strerror(errno))
        .advice("check the path, and that this user may read it");
}

UniqueFd open_file(const std::string& path) {
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// ssh refuses a key that other users can read. A secret gets only a warning, because Docker and
// Kubernetes mount secrets with the modes 0444 and 0644. They do so on a file system that the
// container cannot write: there the container decides who reads the file, not its mode, and the
// user could not change the mode, so there is no warning at all. Nor is there one for a group's
// right to read (0640), by which a site shares a secret among chosen users, nor for a pipe. Once
// per process: each communicator may read the file again.
void warn_if_others_can_read(int fd, const std::string& path) {
    static std::atomic<bool> warned{false};
    struct stat file {};
    struct statvfs mount {};
    if (::fstat(fd, &file) != 0 || ::fstatvfs(fd, &mount) != 0) return;
    if (!S_ISREG(file.st_mode) || (file.st_mode & S_IROTH) == 0 || (mount.f_flag & ST_RDONLY) != 0)
        return;
    if (warned.exchange(true)) return;
    log::warn(
        fail(Code::invalid,
             "the secret's file '{}' has mode {:04o}, with which every user of this host can read "
             "it and join the job",
             path, file.st_mode & 07777)
            .advice("run chmod 600 on the file, or mount it with mode 0400"));
}

Result<std::string> read_all(const UniqueFd& fd, const std::string& path, std::size_t most_bytes) {
    std::string text;
    char chunk[4 * 1024];
    for (;;) {
        const ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
        if (got == 0) return text;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path);
        text.append(chunk, static_cast<std::size_t>(got));
        if (text.size() > most_bytes)
            return fail(Code::invalid, "the file '{}' is longer than {} bytes", path, most_bytes)
                .advice("check that the path names the right file");
    }
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, std::size_t most_bytes) {
    const UniqueFd fd = open_file(path);
    if (!fd) return unreadable(path);
    return read_all(fd, path, most_bytes);
}

Result<std::string> read_secret_file(const std::string& path) {
    constexpr std::size_t most_bytes = 64 * 1024;
    const UniqueFd fd = open_file(path);
    if (!fd) return unreadable(path);
    warn_if_others_can_read(fd.get(), path);
    TUTTI_ASSIGN(std::string text, read_all(fd, path, most_bytes));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty())
        return fail(Code::invalid, "the file '{}' is empty, but it must hold the secret", path)
            .advice("write a random secret into it, for example from `openssl rand -hex 32`");
    return text;
}

}  // namespace tutti
