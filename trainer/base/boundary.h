// The C boundary of the trainer layer: results become statuses, exceptions are caught, and the
// last error is kept for tutti_trainer_last_error.
#pragma once

#include <utility>

#include "trainer/base/result.h"

namespace tutti::trainer {

/// This thread's last failure in any call of the layer.
Error& last_error();
/// Keeps the error for this thread and returns its status.
tutti_status keep(const Error& error);
Error in_function(const char* function, Error error);

/// The current exception as an error; call it in a catch block.
Error current_exception();

/// Runs the body; an exception becomes an error.
template <typename Body>
auto contain(Body&& body) noexcept -> decltype(body()) {
    try {
        return body();
    } catch (...) {
        return tl::unexpected<Error>(current_exception());
    }
}

template <typename Body>
tutti_status guard(Body&& body) noexcept {
    const Result<> result = contain(body);
    return result ? TUTTI_OK : keep(result.error());
}

/// With the function's name before the error's sentence.
template <typename Body>
tutti_status guard(const char* function, Body&& body) noexcept {
    Result<> result = contain(body);
    return result ? TUTTI_OK : keep(in_function(function, std::move(result).error()));
}

inline ErrorResult null_argument(const char* function, const char* argument) {
    return fail(TUTTI_ERR_INVALID, "{}: {} is NULL", function, argument)
        .advice("pass a pointer that is not NULL");
}

}  // namespace tutti::trainer
