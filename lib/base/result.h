// Errors are values: a code for programs, the rank at fault, and a sentence for people.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/types.h"

namespace tutti {

// The values are those of tutti_status in the C header; capi holds the two against each other.
enum class Code : uint8_t {
    ok = 0,
    in_progress,
    invalid,
    mismatch,
    timeout,
    peer_lost,
    aborted,
    unsupported,
    auth,
    system,
    no_memory,
};

std::string_view code_name(Code code);

struct Error {
    Code code = Code::system;
    Rank rank = nobody;  // the rank at fault, if one is known
    int sys_errno = 0;
    std::string message;
};

template <typename T = void>
using Result = tl::expected<T, Error>;

/// An Error with a formatted message: `return fail(Code::invalid, "root {} is out of range",
/// root)`.
template <typename... Args>
tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
    return tl::unexpected<Error>(
        Error{code, nobody, 0, fmt::format(text, std::forward<Args>(args)...)});
}

/// The same, naming the rank at fault.
template <typename... Args>
tl::unexpected<Error> fail_rank(Code code, Rank rank, fmt::format_string<Args...> text,
                                Args&&... args) {
    return tl::unexpected<Error>(
        Error{code, rank, 0, fmt::format(text, std::forward<Args>(args)...)});
}

/// A failed system call: "what: strerror(saved_errno)", with the errno kept.
tl::unexpected<Error> fail_errno(int saved_errno, std::string_view what);

/// Hands an error on with what was being done in front of its message.
tl::unexpected<Error> wrap(Error error, std::string_view doing);

}  // namespace tutti

/// Propagates the error of a Result expression: `TUTTI_TRY(do_it());`
#define TUTTI_TRY(expression)                                                        \
    do {                                                                             \
        if (auto tutti_result_ = (expression); !tutti_result_)                       \
            return tl::unexpected<::tutti::Error>(std::move(tutti_result_).error()); \
    } while (false)

#define TUTTI_CONCAT_(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_(a, b)
/// Binds the value of a Result expression or propagates its error: `TUTTI_ASSIGN(auto fd, open());`
#define TUTTI_ASSIGN(target, expression) \
    TUTTI_ASSIGN_(TUTTI_CONCAT(tutti_result_, __LINE__), target, expression)
#define TUTTI_ASSIGN_(result, target, expression)                                  \
    auto result = (expression);                                                    \
    if (!result) return tl::unexpected<::tutti::Error>(std::move(result).error()); \
    target = std::move(*result)
