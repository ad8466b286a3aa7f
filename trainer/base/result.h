// Errors of the trainer layer are values: a status, the rank and device at fault, and a sentence.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "tutti/tutti.h"

namespace tutti::trainer {

struct Error {
    tutti_status status = TUTTI_ERR_SYSTEM;
    int rank = -1;
    int device = -1;
    std::string message;
    bool agreed = false;      // every rank has it at the same call: no rank has to be told
    std::string advice = {};  // for the reader; if it is empty, error_text gives the status's
};

template <typename T = void>
using Result = tl::expected<T, Error>;

/// "MESSAGE. What to do: ADVICE", like tutti_last_error. If the message has libtutti's advice, that
/// stays.
std::string error_text(const Error& error);

/// A message up to the advice that a cause brought with it.
std::string without_advice(const std::string& message);

/// An Error on its way to a Result; advice() adds an imperative for the reader, without a full
/// stop.
class ErrorResult : public tl::unexpected<Error> {
public:
    explicit ErrorResult(Error error) : tl::unexpected<Error>(std::move(error)) {}

    template <typename... Args>
    ErrorResult&& advice(fmt::format_string<Args...> text, Args&&... args) && {
        value().advice = fmt::format(text, std::forward<Args>(args)...);
        return std::move(*this);
    }
    /// Every rank has this error at the same call, so that no other rank has to be told.
    ErrorResult&& agreed() && {
        value().agreed = true;
        return std::move(*this);
    }
};

template <typename... Args>
ErrorResult fail(tutti_status status, fmt::format_string<Args...> text, Args&&... args) {
    return ErrorResult({status, -1, -1, fmt::format(text, std::forward<Args>(args)...)});
}

/// The error of a request that the program should not have made.
template <typename... Args>
ErrorResult invalid(fmt::format_string<Args...> text, Args&&... args) {
    return fail(TUTTI_ERR_INVALID, text, std::forward<Args>(args)...);
}

/// The same, naming the rank at fault.
template <typename... Args>
ErrorResult fail_rank(tutti_status status, int rank, fmt::format_string<Args...> text,
                      Args&&... args) {
    return ErrorResult({status, rank, -1, fmt::format(text, std::forward<Args>(args)...)});
}

/// The same, naming the device at fault.
template <typename... Args>
ErrorResult fail_device(tutti_status status, int device, fmt::format_string<Args...> text,
                        Args&&... args) {
    return ErrorResult({status, -1, device, fmt::format(text, std::forward<Args>(args)...)});
}

/// "what: strerror(saved_errno)", with advice where the errno has a usual remedy.
ErrorResult fail_errno(int saved_errno, std::string_view what);

/// A status of tutti.h as a result. The error's message names the work in progress, then has
/// tutti_last_error's sentence.
Result<> from_call(tutti_status status, std::string_view doing);

/// Begins an operation of several collectives. MISMATCH on every rank, with both names, if some
/// rank begins another one. No effect for a single rank or without a communicator.
Result<> begin_named(tutti_comm* comm, const char* name);

/// Runs a collective that is part of an operation and carries the operation's name, which costs no
/// barrier. start(opts, request) issues it.
template <typename Start>
Result<> run_within(const char* name, std::string_view doing, Start&& start) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = 0;
    opts.name = name;
    tutti_request* request = nullptr;
    Result<> started = from_call(start(&opts, &request), doing);
    return started ? from_call(tutti_wait(&request, -1), doing) : started;
}

}  // namespace tutti::trainer

#define TRAINER_CONCAT_(a, b) a##b
#define TRAINER_CONCAT(a, b) TRAINER_CONCAT_(a, b)

/// Propagates the error of a Result expression: `TRAINER_TRY(do_it());` One may be inside another.
#define TRAINER_TRY(expression) \
    TRAINER_TRY_(TRAINER_CONCAT(trainer_result_, __COUNTER__), expression)
#define TRAINER_TRY_(result, expression)                                               \
    do {                                                                               \
        if (auto result = (expression); !result)                                       \
            return tl::unexpected<::tutti::trainer::Error>(std::move(result).error()); \
    } while (false)

/// Binds the value of a Result expression or propagates its error.
#define TRAINER_ASSIGN(target, expression) \
    TRAINER_ASSIGN_(TRAINER_CONCAT(trainer_result_, __COUNTER__), target, expression)
#define TRAINER_ASSIGN_(result, target, expression)                                         \
    auto result = (expression);                                                             \
    if (!result) return tl::unexpected<::tutti::trainer::Error>(std::move(result).error()); \
    target = std::move(*result)
