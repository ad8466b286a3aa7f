// Where C++ stops in the trainer layer: results become statuses, exceptions are caught, and the
// last error is kept for tutti_trainer_last_error.
#pragma once

#include <exception>
#include <new>

#include "trainer/base/result.h"

namespace tutti::trainer {

/// This thread's last failure in any call of the layer.
Error& last_error();
/// Keeps the error for this thread and returns its status.
tutti_status keep(const Error& error);

template <typename Body>
tutti_status guard(Body&& body) noexcept {
    try {
        Result<> result = body();
        return result ? TUTTI_OK : keep(result.error());
    } catch (const std::bad_alloc&) {
        return keep({TUTTI_ERR_NO_MEMORY, -1, -1, "out of memory"});
    } catch (const std::exception& e) {
        return keep({TUTTI_ERR_SYSTEM, -1, -1, e.what()});
    }
}

inline tl::unexpected<Error> null_argument(const char* function, const char* argument) {
    return fail(TUTTI_ERR_INVALID, "{}: {} is NULL", function, argument);
}

}  // namespace tutti::trainer
