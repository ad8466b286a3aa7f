#include "rendezvous/job_directory.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "config/small_file.h"
#include "net/auth.h"
#include "net/serving.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t secret_bytes = 32;
constexpr std::size_t name_digits = 24;  // of the hash of a job's identity
constexpr int lock_pause_ms = 5;

std::string secret_path(const std::string& directory) {
    return directory + "/secret";
}

std::string name_begin() {
    return fmt::format("tutti-{}-", ::geteuid());
}

std::string name_hash(std::string_view text) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    EVP_Digest(text.data(), text.size(), digest, &bytes, EVP_sha256(), nullptr);
    std::string out;
    for (unsigned i = 0; i < bytes; ++i) out += fmt::format("{:02x}", digest[i]);
    return out.substr(0, name_digits);
}

bool is_own(const struct stat& info) {
    return S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

ErrorResult directory_error(const char* doing, const std::string& path) {
    auto failed = fail_errno(errno, fmt::format("job directory: cannot {} {}", doing, path));
    if (!failed.value().advice.empty()) return failed;
    return std::move(failed).advice(
        "set TUTTI_STORE, or XDG_RUNTIME_DIR to a directory of yours that is writable");
}

// Another user may have created this path in /tmp first: accepts only a directory of this user's
// alone.
Result<> make_own(const std::string& path) {
    if (::mkdir(path.c_str(), 0700) == 0) return {};
    if (errno != EEXIST) return directory_error("make", path);
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
        if (errno == ENOENT) return {};  // its last user has just removed the directory
        return directory_error("look at", path);
    }
    if (is_own(info)) return {};
    return fail(Code::invalid,
                "the job directory {} exists, but is not a directory of this user alone (owner {}, "
                "mode {:o}); another user may have made it",
                path, info.st_uid, info.st_mode & 07777)
        .advice("remove it, or set TUTTI_STORE");
}

// The file appears with all of its content. If another process has made it first, that file is
// used.
Result<> make_secret(const std::string& directory) {
    TUTTI_ASSIGN(const std::string tail, net::random_hex(12));
    TUTTI_ASSIGN(const std::string secret, net::random_hex(secret_bytes));
    const std::string draft = directory + "/.draft-" + tail;
    const UniqueFd fd(::open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    if (!fd) {
        if (errno == ENOENT) return {};
        return directory_error("create", draft);
    }
    const bool written =
        ::write(fd.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
    const bool linked = written && (::link(draft.c_str(), secret_path(directory).c_str()) == 0 ||
                                    errno == EEXIST || errno == ENOENT);
    const int cause = errno;
    ::unlink(draft.c_str());
    errno = cause;
    if (!linked) return directory_error("write", draft);
    return {};
}

UniqueFd open_secret(const std::string& directory) {
    return UniqueFd(::open(secret_path(directory).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

/// Whether the file still has a name: a process that left may have removed it.
bool is_linked(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
}

// Removes the directories of dead jobs: no process holds their locks.
void remove_dead(const std::string& own_path) {
    std::error_code ignored;
    const fs::path base = fs::path(own_path).parent_path();
    for (fs::directory_iterator i(base, ignored), end; i != end; i.increment(ignored)) {
        const std::string path = i->path().string();
        struct stat info {};
        if (path == own_path || !i->path().filename().string().starts_with(name_begin()) ||
            ::lstat(path.c_str(), &info) != 0 || !is_own(info))
            continue;
        const UniqueFd lock = open_secret(path);
        if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, ignored);
    }
}

}  // namespace

std::string job_directory_path(std::string_view identity) {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    struct stat info {};
    const bool usable = runtime && *runtime == '/' && ::stat(runtime, &info) == 0 && is_own(info);
    return fmt::format("{}/{}{}", usable ? runtime : "/tmp", name_begin(), name_hash(identity));
}

JobDirectory::JobDirectory(std::string path, UniqueFd lock, std::string secret)
    : path_(std::move(path)),
      lock_(std::move(lock)),
      secret_(std::move(secret)),
      owner_(::getpid()) {}

Result<std::unique_ptr<JobDirectory>> JobDirectory::open(const std::string& path,
                                                         Deadline deadline) {
    remove_dead(path);
    while (true) {
        TUTTI_TRY(make_own(path));
        UniqueFd lock = open_secret(path);
        if (!lock && errno != ENOENT) return directory_error("read", secret_path(path));
        if (!lock) {
            TUTTI_TRY(make_secret(path));
        } else if (::flock(lock.get(), LOCK_SH | LOCK_NB) == 0 && is_linked(lock.get())) {
            TUTTI_ASSIGN(std::string secret, read_secret_file(secret_path(path)));
            return std::unique_ptr<JobDirectory>(
                new JobDirectory(path, std::move(lock), std::move(secret)));
        } else {
            net::poll_serving(nullptr, lock_pause_ms);  // a leaving process is about to remove it
        }
        if (deadline.passed() || net::wait_cancelled())
            return fail(Code::timeout,
                        "timed out opening the job directory {}, which other processes remove "
                        "again and again",
                        path)
                .advice("end the earlier processes of this job, or set TUTTI_STORE");
    }
}

JobDirectory::~JobDirectory() {
    if (owner_ != ::getpid()) return;
    // Fails while another process holds its shared lock.
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 || !is_linked(lock_.get())) return;
    ::unlink(secret_path(path_).c_str());
    ::rmdir(path_.c_str());
}

}  // namespace tutti
