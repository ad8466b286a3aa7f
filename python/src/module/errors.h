// From tutti's status to python's exceptions.
#pragma once

#include <tutti/tutti.h>

namespace tutti_python {

/// Throws the exception of tutti._errors that belongs to this thread's last failure. With the GIL.
[[noreturn]] void raise(tutti_status status, const char* operation);
/// The same with the failure's text and rank.
[[noreturn]] void raise(tutti_status status, const char* operation, const char* text, int rank);

inline void check(tutti_status status, const char* operation) {
    if (status != TUTTI_OK) raise(status, operation);
}

}  // namespace tutti_python
