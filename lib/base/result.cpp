#include "base/result.h"

#include <cstring>

namespace tutti {

std::string_view code_name(Code code) {
    static constexpr std::string_view names[] = {
        "ok",      "in progress", "invalid argument", "mismatch", "timeout",  "peer lost",
        "aborted", "unsupported", "authentication",   "system",   "no memory"};
    const auto index = static_cast<std::size_t>(code);
    return index < std::size(names) ? names[index] : "unknown";
}

tl::unexpected<Error> fail_errno(int saved_errno, std::string_view what) {
    char text[128];
    const char* reason = strerror_r(saved_errno, text, sizeof text);
    const Code code = saved_errno == ENOMEM ? Code::no_memory : Code::system;
    return tl::unexpected<Error>(
        Error{code, nobody, saved_errno, fmt::format("{}: {}", what, reason)});
}

tl::unexpected<Error> wrap(Error error, std::string_view doing) {
    error.message = fmt::format("{}: {}", doing, error.message);
    return tl::unexpected<Error>(std::move(error));
}

}  // namespace tutti
