#include "errors.h"

#include <algorithm>
#include <string_view>

namespace tutti_torch {
namespace {

std::string_view words_for(tutti_status status) {
    switch (status) {
        case TUTTI_ERR_TIMEOUT:
            // The second part is gloo's own text.
            return "timed out: Timed out waiting for other ranks";
        case TUTTI_ERR_PEER_LOST:
            return "Connection closed by peer";
        case TUTTI_ERR_ABORTED:
            return "aborted, the group is closed";
        case TUTTI_ERR_REVOKED:
            return "revoked";
        case TUTTI_ERR_MISMATCH:
            return "collective mismatch";
        default:
            return "";
    }
}

std::string text_of(tutti_status status, const std::string& operation, const std::string& cause) {
    std::string text = "tutti " + operation + ": ";
    const std::string_view words = words_for(status);
    if (cause.find(words) == std::string::npos) text.append(words).append(": ");
    return text + cause;
}

}  // namespace

std::exception_ptr last_failure(tutti_status status, const std::string& operation,
                                const std::string& more) {
    std::string cause = tutti_last_error();
    if (!more.empty())
        cause.replace(std::min(cause.find(". What to do: "), cause.size()), std::string::npos,
                      more);
    const int rank = tutti_last_error_rank();
    const std::string text = text_of(status, operation, cause);
    if (status == TUTTI_ERR_INVALID)
        return std::make_exception_ptr(
            c10::ValueError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
    return std::make_exception_ptr(CallError(status, rank, operation, cause, text));
}

void check(tutti_status status, const std::string& operation, const std::string& more) {
    if (status != TUTTI_OK) std::rethrow_exception(last_failure(status, operation, more));
}

}  // namespace tutti_torch
