// Turns a failed call of tutti into torch's exception.
#pragma once

#include <tutti/tutti.h>

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace tutti_torch {

/// A DistBackendError with rank and status: python turns it into one of tutti.torch's exceptions.
class CallError : public c10::DistBackendError {
public:
    CallError(tutti_status what, int culprit, std::string call, std::string why,
              const std::string& text)
        : c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text),
          status(what),
          rank(culprit),
          operation(std::move(call)),
          cause(std::move(why)) {}

    tutti_status status;
    int rank;  ///< the rank at fault, -1 if none is known
    std::string operation, cause;
};

/// This thread's last failure of tutti, as an exception. Scripts look for some of torch's own words
/// ("timed out", "Connection closed by peer"): the text begins with them, unless tutti's text has
/// them. more: replaces the library's advice at the end of the text.
std::exception_ptr last_failure(tutti_status status, const std::string& operation,
                                const std::string& more = {});

/// Throws last_failure unless status is OK.
void check(tutti_status status, const std::string& operation, const std::string& more = {});

}  // namespace tutti_torch
