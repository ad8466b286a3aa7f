#include "config/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace tutti {

Result<std::string> read_small_file(const std::string& path, std::size_t most_bytes) {
    const auto unreadable = [&] {
        return fail(Code::invalid, "the file '{}' cannot be read: {}", path, std::strerror(errno))
            .advice("check the path, and that this user may read it");
    };
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return unreadable();
    std::string text;
    char chunk[4 * 1024];
    for (;;) {
        const ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
        if (got == 0) return text;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable();
        text.append(chunk, static_cast<std::size_t>(got));
        if (text.size() > most_bytes)
            return fail(Code::invalid, "the file '{}' is longer than {} bytes", path, most_bytes)
                .advice("check that the path names the right file");
    }
}

Result<std::string> read_secret_file(const std::string& path) {
    constexpr std::size_t most_bytes = 64 * 1024;
    TUTTI_ASSIGN(std::string text, read_small_file(path, most_bytes));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty())
        return fail(Code::invalid, "the file '{}' is empty, but it must hold the secret", path)
            .advice("write a random secret into it, for example from `openssl rand -hex 32`");
    return text;
}

}  // namespace tutti
