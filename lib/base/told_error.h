// Errors that another process reports.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tutti {

/// An error about one of `size` ranks. A code that is not a failure counts as system, and a rank
/// out of range as nobody. The text is error_text's: the advice in it becomes the error's advice.
inline Error told_error(Code code, Rank rank, Rank size, std::string text) {
    const bool failure = code > Code::in_progress && code <= last_code;
    Error told{failure ? code : Code::system, rank >= 0 && rank < size ? rank : nobody, 0,
               std::move(text)};
    if (const auto at = told.message.find(advice_marker); at != std::string::npos) {
        told.advice = told.message.substr(at + advice_marker.size());
        told.message.resize(at);
    }
    return told;
}

}  // namespace tutti
