// Errors that another process tells of.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace tutti {

/// About a rank of so many. Whatever it says, it is a failure: what is none counts as system, and
/// what is no rank as nobody.
inline Error told_error(Code code, Rank rank, Rank size, std::string message) {
    const bool failure = code > Code::in_progress && code <= Code::no_memory;
    return {failure ? code : Code::system, rank >= 0 && rank < size ? rank : nobody, 0,
            std::move(message)};
}

}  // namespace tutti
