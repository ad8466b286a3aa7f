#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/fd.h"
#include "net/auth.h"
#include "net/serving.h"
#include "rendezvous/store_kinds.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// File names have at most 255 bytes; a longer name keeps its start, for people, and ends in a hash.
constexpr std::size_t longest_name = 200;
constexpr int64_t first_pause_ms = 1;
constexpr int64_t longest_pause_ms = 50;
// A turn fails only if another rank leaves or removes at the same moment.
constexpr int attempts = 100;

std::string hash_hex(std::string_view text) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    EVP_Digest(text.data(), text.size(), digest, &bytes, EVP_sha256(), nullptr);
    std::string out;
    for (unsigned i = 0; i < bytes; ++i) out += fmt::format("{:02x}", digest[i]);
    return out;
}

// Maps any text to a file name of its own: no slash, no leading dot (which marks an unfinished
// value), and different names for different texts, because only the encoding produces '~' and a
// lone '%'.
std::string file_name_of(std::string_view text) {
    if (text.empty()) return "%";
    std::string out;
    for (const char c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                           (c == '.' && !out.empty());
        if (plain)
            out += c;
        else
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    if (out.size() > longest_name) out = out.substr(0, longest_name / 2) + "~" + hash_hex(text);
    return out;
}

ErrorResult file_error(int saved_errno, std::string_view doing, const fs::path& path) {
    auto failed =
        fail_errno(saved_errno, fmt::format("file store: cannot {} {}", doing, path.string()));
    if (!failed.value().advice.empty()) return failed;
    return std::move(failed).advice("set TUTTI_STORE to a directory that every rank may write to");
}

Result<> make_directory(const fs::path& path) {
    // Not create_directories(): its errors do not name the part of the path that failed.
    if (mkdir(path.c_str(), 0700) == 0) return {};
    if (errno == ENOENT && path.has_parent_path() && path.parent_path() != path) {
        TUTTI_TRY(make_directory(path.parent_path()));
        if (mkdir(path.c_str(), 0700) == 0) return {};
    }
    const int saved_errno = errno;
    struct stat info {};
    if (saved_errno != EEXIST || stat(path.c_str(), &info) != 0)
        return file_error(saved_errno, "create the directory", path);
    if (!S_ISDIR(info.st_mode))
        return fail(Code::invalid, "file store: {} is not a directory", path.string())
            .advice("set TUTTI_STORE to a directory that every rank may write to");
    return {};
}

Result<> write_whole(int fd, std::string_view value, const fs::path& path) {
    while (!value.empty()) {
        const ssize_t written = write(fd, value.data(), value.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_error(errno, "write", path);
        value.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

// A whole value under a name that no get reads. The destructor removes it unless it was moved.
class Draft {
public:
    explicit Draft(fs::path path) : path_(std::move(path)) {}
    Draft(Draft&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    Draft& operator=(Draft&&) = delete;
    ~Draft() {
        if (!path_.empty()) unlink(path_.c_str());
    }
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

class FileStore final : public Store {
public:
    FileStore(std::string name, fs::path directory)
        : name_(std::move(name)), directory_(std::move(directory)) {}
    ~FileStore() override;

    Result<> check();

    Result<> set(const std::string& key, std::string_view value, Deadline deadline) override;
    Result<std::string> get(const std::string& key, Deadline deadline) override;
    Result<std::optional<std::string>> try_get(const std::string& key, Deadline deadline) override;
    Result<bool> claim(const std::string& key, std::string_view value, std::string& existing,
                       Deadline deadline) override;
    Result<> remove(const std::string& key, Deadline deadline) override;
    bool forgets() const override { return true; }
    std::string describe() const override { return name_; }

private:
    fs::path path_of(const std::string& key) const { return directory_ / file_name_of(key); }
    Result<Draft> write_draft(std::string_view value);
    Result<bool> read(const fs::path& path, std::string& value) const;
    void own(const fs::path& path);

    std::string name_;
    fs::path directory_;
    std::mutex mutex_;
    std::set<fs::path> own_;
};

// While other ranks' values are still there, rmdir fails; the last rank's succeeds.
FileStore::~FileStore() {
    for (const fs::path& path : own_) unlink(path.c_str());
    rmdir(directory_.c_str());
}

Result<> FileStore::check() {
    TUTTI_TRY(make_directory(directory_));
    TUTTI_TRY(write_draft(""));
    return {};
}

Result<Draft> FileStore::write_draft(std::string_view value) {
    for (int i = 0;; ++i) {
        TUTTI_ASSIGN(const std::string tail, net::random_hex(12));
        Draft draft(directory_ / (".draft-" + tail));
        const UniqueFd fd(
            open(draft.path().c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
        if (fd) {
            TUTTI_TRY(write_whole(fd.get(), value, draft.path()));
            return draft;
        }
        if (errno != ENOENT || i == attempts) return file_error(errno, "create", draft.path());
        TUTTI_TRY(make_directory(directory_));  // a rank that left found it empty and removed it
    }
}

Result<bool> FileStore::read(const fs::path& path, std::string& value) const {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
        if (errno == ENOENT) return false;
        return file_error(errno, "read", path);
    }
    value.clear();
    char chunk[4 * 1024];
    while (true) {
        const ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
        if (got == 0) return true;
        if (got > 0) value.append(chunk, static_cast<std::size_t>(got));
        // NFS: another rank replaced the file during the read.
        if (got < 0 && errno == ESTALE) return false;
        if (got < 0 && errno != EINTR) return file_error(errno, "read", path);
    }
}

void FileStore::own(const fs::path& path) {
    const std::lock_guard lock(mutex_);
    own_.insert(path);
}

Result<> FileStore::set(const std::string& key, std::string_view value, Deadline) {
    const fs::path path = path_of(key);
    TUTTI_ASSIGN(const Draft draft, write_draft(value));
    if (rename(draft.path().c_str(), path.c_str()) != 0) return file_error(errno, "write", path);
    own(path);
    return {};
}

Result<std::string> FileStore::get(const std::string& key, Deadline deadline) {
    const fs::path path = path_of(key);
    const int64_t start_ns = now_ns();
    std::string value;
    for (int64_t pause_ms = first_pause_ms;;
         pause_ms = std::min(pause_ms * 3 / 2 + 1, longest_pause_ms)) {
        TUTTI_ASSIGN(const bool found, read(path, value));
        if (found) return value;
        if (deadline.passed() || net::wait_cancelled()) return key_missing(key, name_, start_ns);
        // Polls, because a network file system does not notify about other hosts' writes.
        net::poll_serving(nullptr, static_cast<int>(deadline.left_ms(pause_ms)));
    }
}

Result<std::optional<std::string>> FileStore::try_get(const std::string& key, Deadline) {
    std::string value;
    TUTTI_ASSIGN(const bool found, read(path_of(key), value));
    return found ? std::optional(std::move(value)) : std::nullopt;
}

Result<bool> FileStore::claim(const std::string& key, std::string_view value, std::string& existing,
                              Deadline) {
    const fs::path path = path_of(key);
    TUTTI_ASSIGN(const Draft draft, write_draft(value));
    for (int i = 0; i < attempts; ++i) {
        const int error = link(draft.path().c_str(), path.c_str()) == 0 ? 0 : errno;
        struct stat info {};
        // Over NFS a link can succeed and its answer be lost: the link count shows it.
        if (error == 0 || (stat(draft.path().c_str(), &info) == 0 && info.st_nlink == 2)) {
            own(path);
            return true;
        }
        if (error != EEXIST) return file_error(error, "link", path);
        TUTTI_ASSIGN(const bool found, read(path, existing));
        if (found) return false;
    }
    return fail(Code::system, "file store: other processes remove {} again and again",
                path.string())
        .advice("give each run its own TUTTI_JOB or its own directory in TUTTI_STORE");
}

Result<> FileStore::remove(const std::string& key, Deadline) {
    const fs::path path = path_of(key);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return file_error(errno, "remove", path);
    const std::lock_guard lock(mutex_);
    own_.erase(path);
    return {};
}

}  // namespace

Result<std::unique_ptr<Store>> open_file_store(const StoreOptions& options) {
    const std::string_view root = after_scheme(options.url);
    if (!root.starts_with('/'))
        return fail(Code::invalid, "store \"{}\" has no absolute path", options.url)
            .advice("write file:///directory, with three slashes");
    const fs::path clean = fs::path(root).lexically_normal();
    auto store = std::make_unique<FileStore>(options.url, clean / file_name_of(options.job));
    TUTTI_TRY(store->check());
    return store;
}

}  // namespace tutti
