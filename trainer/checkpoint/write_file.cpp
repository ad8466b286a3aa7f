#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "trainer/checkpoint/file.h"

namespace tutti::trainer::checkpoint {
namespace {
// Attempts to lock a file that other processes rename between this process's open and lock.
constexpr int lock_attempts = 100;
}  // namespace

Result<PartialFile> PartialFile::create(const std::string& path) {
    PartialFile file(path);
    for (int attempt = 0; attempt < lock_attempts; ++attempt) {
        TRAINER_ASSIGN(const bool ours, file.open_locked());
        if (!ours) continue;
        if (ftruncate(file.fd_.get(), 0) != 0)
            return fail_errno(errno, fmt::format("checkpoint '{}': truncate", file.partial_));
        return file;
    }
    return fail(TUTTI_ERR_SYSTEM, "checkpoint '{}': other processes keep replacing the file",
                file.partial_)
        .advice("give each job a file of its own");
}

/// False if the name refers to another file once this process has the lock: another process has
/// just renamed the opened file to its final name, and it must not change any more.
Result<bool> PartialFile::open_locked() {
    Descriptor fd(::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (fd.get() < 0) return fail_errno(errno, fmt::format("checkpoint '{}': create", partial_));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return fail(TUTTI_ERR_INVALID, "checkpoint '{}': another process is writing the file",
                        partial_)
                .advice("give each job a file of its own");
        return fail_errno(errno, fmt::format("checkpoint '{}': lock", partial_));
    }
    struct stat opened {
    }, named{};
    if (fstat(fd.get(), &opened) != 0)
        return fail_errno(errno, fmt::format("checkpoint '{}': stat", partial_));
    if (stat(partial_.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
        opened.st_dev != named.st_dev)
        return false;
    fd_ = std::move(fd);
    return true;
}

PartialFile::~PartialFile() {
    // Only this process may remove it: the lock is held until the descriptor closes.
    if (fd_.get() >= 0) unlink(partial_.c_str());
}

Result<> PartialFile::append(std::span<const std::byte> bytes) {
    TRAINER_TRY(write_at(bytes.data(), bytes.size(), written_));
    written_ += bytes.size();
    return {};
}

Result<> PartialFile::overwrite_start(std::string_view bytes) {
    return write_at(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), 0);
}

Result<> PartialFile::write_at(const std::byte* data, std::size_t bytes, uint64_t offset) {
    while (bytes > 0) {
        const ssize_t n = pwrite(fd_.get(), data, bytes, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(errno, fmt::format("checkpoint '{}': write", partial_));
        data += n;
        bytes -= static_cast<std::size_t>(n);
        offset += static_cast<uint64_t>(n);
    }
    return {};
}

Result<> PartialFile::commit() {
    if (fsync(fd_.get()) != 0)
        return fail_errno(errno, fmt::format("checkpoint '{}': sync", partial_));
    if (std::rename(partial_.c_str(), path_.c_str()) != 0)
        return fail_errno(errno, fmt::format("checkpoint '{}': rename", path_));
    fd_ = Descriptor();
    return sync_folder();
}

/// Without it, a power failure may lose the new name. Some network file systems cannot sync a
/// folder: that is no failure, because the file already has its final name.
Result<> PartialFile::sync_folder() const {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    const Descriptor fd(
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool synced = fd.get() >= 0 && fsync(fd.get()) == 0;
    if (!synced && errno != EACCES && errno != EINVAL && errno != ENOTSUP)
        return fail_errno(errno, fmt::format("checkpoint '{}': sync of its folder", path_));
    return {};
}

}  // namespace tutti::trainer::checkpoint
