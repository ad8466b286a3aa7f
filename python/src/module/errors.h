// From tutti's status to python's exceptions.
#pragma once

#include <tutti/tutti.h>

#include "../tutti/torch/csrc/released.h"

namespace tutti_python {

/// Throws the exception of tutti._errors that belongs to this thread's last failure. With the GIL.
[[noreturn]] void raise(tutti_status status, const char* operation);
/// The same with the failure's text and rank.
[[noreturn]] void raise(tutti_status status, const char* operation, const char* text, int rank);

inline void check(tutti_status status, const char* operation) {
    if (status != TUTTI_OK) raise(status, operation);
}

/// The same for a call that returns the status and runs without the GIL.
template <typename Call>
void check_released(const char* operation, Call call) {
    tutti_status status = TUTTI_OK;
    {
        const Released released;
        status = call();
    }
    check(status, operation);
}

}  // namespace tutti_python
