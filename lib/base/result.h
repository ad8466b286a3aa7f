// Errors are values: a code for programs, the rank at fault, and a sentence for people.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "base/types.h"

namespace tutti {

// The values are those of tutti_status in the C header; capi checks that they match.
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
    revoked,
};
inline constexpr Code last_code = Code::revoked;

std::string_view code_name(Code code);

struct Error {
    Code code = Code::system;
    Rank rank = nobody;  // the rank at fault, if one is known
    int sys_errno = 0;
    std::string message;      // the failure and its cause, without the advice
    std::string advice = {};  // for the reader; if it is empty, error_text gives the code's
    Rank reporter = nobody;   // the rank that ran into the error
};

/// Success or an Error. `return {}` with tl::expected itself would write zeros over the whole
/// object first, because its default constructor is not user-provided. Hot paths return this type.
class VoidResult : public tl::expected<void, Error> {
public:
    using tl::expected<void, Error>::expected;
    VoidResult() noexcept {}
    /// From and_then() and map(), which know the base only.
    VoidResult(tl::expected<void, Error> result) : tl::expected<void, Error>(std::move(result)) {}
};

template <typename T = void>
using Result = std::conditional_t<std::is_void_v<T>, VoidResult, tl::expected<T, Error>>;

inline constexpr std::string_view advice_marker = ". What to do: ";

/// The text of an error for people: "rank REPORTER: MESSAGE. What to do: ADVICE" The first part is
/// missing if no rank is known. A message from another rank may include its advice already, and
/// keeps it.
std::string error_text(const Error& error);

/// An Error on its way to a Result. The members add what the caller knows: `return
/// fail(Code::invalid, "root {} is out of range", root).advice("give 0 to {}", size - 1);`
class ErrorResult : public tl::unexpected<Error> {
public:
    explicit ErrorResult(Error error) : tl::unexpected<Error>(std::move(error)) {}

    /// The advice to the reader: an imperative without a full stop.
    template <typename... Args>
    ErrorResult&& advice(fmt::format_string<Args...> text, Args&&... args) && {
        value().advice = fmt::format(text, std::forward<Args>(args)...);
        return std::move(*this);
    }
    /// The rank that ran into the error, as opposed to the rank at fault.
    ErrorResult&& on(Rank reporter) && {
        value().reporter = reporter;
        return std::move(*this);
    }
};

/// An Error with a formatted message.
template <typename... Args>
ErrorResult fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
    return ErrorResult({code, nobody, 0, fmt::format(text, std::forward<Args>(args)...)});
}

/// The same, naming the rank at fault.
template <typename... Args>
ErrorResult fail_rank(Code code, Rank rank, fmt::format_string<Args...> text, Args&&... args) {
    return ErrorResult({code, rank, 0, fmt::format(text, std::forward<Args>(args)...)});
}

/// A failed system call: "what: strerror(saved_errno)". Keeps the errno; if it means an exhausted
/// limit, the advice names the limit.
ErrorResult fail_errno(int saved_errno, std::string_view what);

/// Passes an error on, with the caller's activity in front of its message.
ErrorResult wrap(Error error, std::string_view doing);

/// Sets the rank that ran into the error, unless it is set already.
Error on_rank(Rank reporter, Error error);

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
