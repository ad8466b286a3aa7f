// How things go wrong inside the layer: an exception with a status and a sentence. It never leaves
// the C boundary (guard), and where threads meet it is carried over by std::exception_ptr.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "tutti/trainer.h"

namespace tutti::training {

class Failure : public std::runtime_error {
public:
    Failure(tutti_status status, const std::string& what, int rank = -1)
        : std::runtime_error(what), status_(status), rank_(rank) {}
    tutti_status status() const { return status_; }
    /// At fault; -1 if none is known.
    int rank() const { return rank_; }

private:
    tutti_status status_;
    int rank_;
};

/// One that every rank finds in the same place: nobody has to be told.
class AgreedFailure : public Failure {
public:
    using Failure::Failure;
};

template <typename... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) {
    throw Failure(TUTTI_ERR_INVALID, fmt::format(format, std::forward<Args>(args)...));
}

/// Of a tutti call; its own last error comes into the sentence.
inline void check_call(tutti_status status, const std::string& doing) {
    if (status != TUTTI_OK)
        throw Failure(status, fmt::format("{}: {}", doing, tutti_last_error()),
                      tutti_last_error_rank());
}

/// For tutti_trainer_last_error and its like.
tutti_status report(const Failure& failure);
/// Forgets the last one.
void clear_last_error();
/// What the current exception comes to; call it in a catch block.
tutti_status report_current(const char* function);

/// Runs a C function's body.
template <typename Body>
tutti_status guard(const char* function, Body&& body) noexcept {
    try {
        body();
        return TUTTI_OK;
    } catch (...) {
        return report_current(function);
    }
}

}  // namespace tutti::training
