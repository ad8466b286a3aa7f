// Prints a tool's text and keeps the first write error, which fmt::print would throw.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/result.h"

namespace tutti {

/// Standard output, or standard error if an option sends a file to standard output.
class Output {
public:
    explicit Output(std::FILE* file) : file_(file) {}
    /// Prints and flushes, because a reader may wait for it. After a failure it prints nothing
    /// more, so that the output has no gaps.
    void print(std::string_view text) {
        if (errno_ == 0 && (std::fwrite(text.data(), 1, text.size(), file_) != text.size() ||
                            std::fflush(file_) != 0))
            errno_ = errno;
    }
    /// Returns the first write error. A program must check it at its end: it would exit with 0
    /// after lost output.
    Result<> written(std::string_view what) const {
        if (errno_ == 0) return {};
        return fail_errno(errno_, fmt::format("cannot write {}", what));
    }

private:
    std::FILE* file_;
    int errno_ = 0;
};

}  // namespace tutti
