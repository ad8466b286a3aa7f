// The ranks' output: cut into lines, prefixed, and written without ever blocking the event loop.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace tutti::run {

/// Tracks unfinished lines where several writers share an output. Writer 0 is tutti-run itself,
/// which writes whole lines.
class Seam {
public:
    /// Whether a newline must end another writer's unfinished line before this text. The text must
    /// not be empty.
    bool breaks(std::string_view text, int writer) {
        const bool another = unfinished_by_ != 0 && unfinished_by_ != writer;
        unfinished_by_ = text.back() == '\n' ? 0 : writer;
        return another;
    }
    bool unfinished() const { return unfinished_by_ != 0; }

private:
    int unfinished_by_ = 0;
};

/// tutti-run's standard output or error. Text waits here until the descriptor takes it.
class Sink {
public:
    /// STDOUT_FILENO or STDERR_FILENO.
    explicit Sink(int fd);
    void add(std::string_view text, int writer = 0);
    bool wants_write() const { return at_ < pending_.size() && !broken(); }
    /// tutti-run stops reading the ranks' output while its own reader is this far behind.
    bool full() const { return wants_write() && pending_.size() - at_ > max_pending_bytes; }
    /// Call it when poll() reports the descriptor as writable. Never blocks. If the reader has
    /// closed the pipe, broken() is true afterwards.
    void write_some();
    bool broken() const { return error_ != 0; }
    /// The reason why output was lost; empty if the reader has closed the pipe.
    std::string why_broken() const;
    int fd() const { return terminal_ ? terminal_.get() : fd_; }

private:
    static constexpr std::size_t max_pending_bytes = 1 << 20;
    int fd_;
    Seam seam_;
    UniqueFd terminal_;  // the terminal, if it is one, opened in non-blocking mode
    std::string pending_;
    std::size_t at_ = 0;
    int error_ = 0;
};

/// tutti-run's standard output and standard error. All gangs share them.
class Console {
public:
    Console();
    Sink& out() { return out_; }
    /// If both streams are one file, the sink of standard output: one queue keeps lines whole and
    /// in order.
    Sink& error() { return one_ ? out_ : err_; }
    std::array<Sink*, 2> sinks() { return {&out_, &err_}; }
    /// Prints a message of tutti-run as one line.
    void say(const std::string& text);
    bool writing() const { return out_.wants_write() || err_.wants_write(); }
    bool broken() const { return out_.broken() || err_.broken(); }

private:
    Sink out_;
    Sink err_;
    const bool one_;
};

/// The log of a rank (--log-dir), which gets a copy of the rank's output.
class Log {
public:
    static Result<std::unique_ptr<Log>> open(const std::string& path, bool fresh);
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    /// After an error it writes nothing.
    void write(std::string_view text, int writer);
    void flush();
    /// The file's first error; a second call returns none.
    std::optional<Error> take_error();

private:
    Log(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
    void check(bool written);
    std::FILE* file_;
    Seam seam_;
    const std::string path_;
    std::optional<Error> error_;
    bool broken_ = false;
};

/// One stream (standard output or error) of one rank.
class RankStream {
public:
    /// log: the rank's log, which must outlive this object, or nullptr.
    RankStream(UniqueFd from, Sink& to, std::string prefix, Log* log);
    /// Reads the available bytes and passes whole lines on; a last line without newline only at the
    /// end.
    void read_some();
    bool open() const { return static_cast<bool>(from_); }
    bool blocked() const { return to_.full(); }
    int fd() const { return from_.get(); }

private:
    void add(std::string_view text);
    void emit(std::string_view text);
    // A line that gets longer than this is passed on in pieces.
    static constexpr std::size_t max_line_bytes = 1 << 20;
    inline static int count_ = 0;

    const int number_ = ++count_;  // identifies this stream as a writer of `to_`
    UniqueFd from_;
    Sink& to_;
    std::string prefix_;
    Log* log_;
    std::string partial_;
};

}  // namespace tutti::run
