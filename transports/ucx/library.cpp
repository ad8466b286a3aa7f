#include "transports/ucx/library.h"

#include <dlfcn.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "transports/ucx/cause.h"

namespace tutti::ucx {
namespace {

constexpr const char* file_name = "libucp.so.0";
// The first version with active messages by rendezvous, and with error reports of shared memory's
// endpoints.
constexpr unsigned oldest_major = 1, oldest_minor = 13;

// From ucs/debug/log_def.h, which not every distribution installs: 0 stops, 1 continues with the
// next handler. Levels go from 0, fatal, upwards to more detail.
constexpr int error_level = 1;
using LogHandler = int (*)(const char* file, unsigned line, const char* function, int level,
                           const void* component, const char* message, va_list arguments);

// Keeps UCX's errors off standard error: UCX also returns them as a status, and logs some before
// every peer's death.
__attribute__((format(printf, 6, 0))) int take_log(const char*, unsigned, const char*, int level,
                                                   const void*, const char* message,
                                                   va_list arguments) {
    std::array<char, 512> text{};
    if (level > error_level && !log::enabled(log::Level::debug)) return 0;
    if (std::vsnprintf(text.data(), text.size(), message, arguments) <= 0) return 0;
    if (level <= error_level) note_error(text.data());
    log::debug("ucx: {}", text.data());
    return 0;
}

// Turns off UCX's signal handlers and its log on standard error, unless the user has set them.
void quieten(void* handle) {
    const auto unset = [](const char* name) { return std::getenv(name) == nullptr; };
    if (unset("UCX_HANDLE_ERRORS") && unset("UCX_ERROR_SIGNALS"))
        if (auto* disable =
                reinterpret_cast<void (*)()>(dlsym(handle, "ucs_debug_disable_signals")))
            disable();
    if (unset("UCX_LOG_LEVEL"))
        if (auto* push =
                reinterpret_cast<void (*)(LogHandler)>(dlsym(handle, "ucs_log_push_handler")))
            push(&take_log);
}

Result<Library> open_library() {
    void* handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(Code::unsupported, "UCX cannot be loaded: {}", dlerror())
            .advice("install UCX (Debian: libucx0), or take ucx out of TUTTI_TRANSPORT");
    quieten(handle);
    Library library;
    const char* missing = nullptr;
#define TUTTI_UCX_LOAD(function)                                                               \
    library.function = reinterpret_cast<decltype(library.function)>(dlsym(handle, #function)); \
    if (!library.function) missing = #function;
    TUTTI_UCX_FUNCTIONS(TUTTI_UCX_LOAD)
#undef TUTTI_UCX_LOAD
    unsigned major = 0, minor = 0, release = 0;
    if (library.ucp_get_version) library.ucp_get_version(&major, &minor, &release);
    if (missing || major < oldest_major || (major == oldest_major && minor < oldest_minor))
        return fail(Code::unsupported, "UCX {}.{} is too old{}{}: at least {}.{} is needed", major,
                    minor, missing ? ", without " : "", missing ? missing : "", oldest_major,
                    oldest_minor)
            .advice(
                "install one newer version of UCX on every host, or take ucx out of "
                "TUTTI_TRANSPORT");
    library.version = fmt::format("{}.{}", major, minor);
    return library;
}

}  // namespace

Result<const Library*> load_library() {
    // Never closed: UCX may have hooked the process's memory functions.
    static const Result<Library> library = open_library();
    if (!library) return tl::unexpected(library.error());
    return &*library;
}

}  // namespace tutti::ucx
