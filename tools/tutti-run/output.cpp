#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace tutti::run {
namespace {

bool same_file(int a, int b) {
    struct stat first {};
    struct stat second {};
    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

}  // namespace

// Other programs may share the descriptor, so it stays in blocking mode, and a terminal is opened a
// second time. If that fails, as on another user's terminal, the first descriptor is used.
Sink::Sink(int fd) : fd_(fd) {
    constexpr int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    if (::isatty(fd) == 1)
        terminal_.reset(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), flags));
}

void Sink::add(std::string_view text, int writer) {
    if (broken() || text.empty()) return;
    if (seam_.breaks(text, writer)) pending_ += '\n';
    pending_.append(text);
}

void Sink::write_some() {
    // A pipe that poll() calls writable has room for PIPE_BUF bytes; a terminal may have less.
    const std::size_t bytes = std::min<std::size_t>(pending_.size() - at_, PIPE_BUF);
    const ssize_t written = ::write(fd(), pending_.data() + at_, bytes);
    if (written < 0) {
        if (errno != EINTR && errno != EAGAIN) error_ = errno;
        return;
    }
    at_ += static_cast<std::size_t>(written);
    if (at_ == pending_.size() || at_ > max_pending_bytes) {
        pending_.erase(0, at_);
        at_ = 0;
    }
}

std::string Sink::why_broken() const {
    if (error_ == EPIPE) return {};
    return fmt::format("cannot write standard {}: {}", fd_ == STDOUT_FILENO ? "output" : "error",
                       std::strerror(error_));
}

Console::Console()
    : out_(STDOUT_FILENO), err_(STDERR_FILENO), one_(same_file(STDOUT_FILENO, STDERR_FILENO)) {}

void Console::say(const std::string& text) {
    error().add(fmt::format("tutti-run: {}\n", text));
}

Result<std::unique_ptr<Log>> Log::open(const std::string& path, bool fresh) {
    std::FILE* const file = std::fopen(path.c_str(), fresh ? "we" : "ae");
    if (file == nullptr) return fail_errno(errno, fmt::format("--log-dir: cannot open {}", path));
    return std::unique_ptr<Log>(new Log(file, path));
}

Log::~Log() {
    if (!broken_ && seam_.unfinished()) std::fputc('\n', file_);  // the next gang appends here
    std::fclose(file_);
}

void Log::write(std::string_view text, int writer) {
    if (broken_) return;
    if (seam_.breaks(text, writer)) check(std::fputc('\n', file_) != EOF);
    check(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
}

void Log::flush() {
    if (!broken_) check(std::fflush(file_) == 0);
}

void Log::check(bool written) {
    if (written || broken_) return;
    broken_ = true;
    error_ = fail_errno(errno, fmt::format("--log-dir: cannot write {}", path_)).value();
}

std::optional<Error> Log::take_error() {
    return std::exchange(error_, std::nullopt);
}

RankStream::RankStream(UniqueFd from, Sink& to, std::string prefix, Log* log)
    : from_(std::move(from)), to_(to), prefix_(std::move(prefix)), log_(log) {}

void RankStream::read_some() {
    static std::array<char, 65536> buffer;  // as large as a pipe; the stack may be small
    const ssize_t got = ::read(from_.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got > 0) {
        add({buffer.data(), static_cast<std::size_t>(got)});
    } else {
        if (!partial_.empty()) emit(std::exchange(partial_, {}));
        from_.reset();
    }
    if (log_ != nullptr) log_->flush();
}

void RankStream::add(std::string_view text) {
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) {
            partial_.append(text);
            if (partial_.size() > max_line_bytes) emit(std::exchange(partial_, {}));
            return;
        }
        const std::string_view line = text.substr(0, end + 1);
        if (partial_.empty()) {
            emit(line);
        } else {
            partial_.append(line);
            emit(std::exchange(partial_, {}));
        }
        text.remove_prefix(line.size());
    }
}

void RankStream::emit(std::string_view text) {
    if (log_ != nullptr) log_->write(text, number_);
    to_.add(prefix_, number_);
    to_.add(text, number_);
    // The next text begins with a prefix, which belongs at the start of a line.
    if (!prefix_.empty() && text.back() != '\n') to_.add("\n", number_);
}

}  // namespace tutti::run
