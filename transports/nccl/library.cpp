#include "transports/nccl/library.h"

#include <dlfcn.h>

#include <mutex>

namespace tutti::nccl {
namespace {

constexpr const char* file_name = "libnccl.so.2";
// The first version with non-blocking communicators that can be finalised, and a compatible
// configuration.
constexpr int oldest_version = 21800;

// The NCCL that the process has loaded by name, or that the program is linked with.
void* already_loaded() {
    if (void* handle = dlopen(file_name, RTLD_NOW | RTLD_NOLOAD)) return handle;
    return dlsym(RTLD_DEFAULT, "ncclCommInitRankConfig") ? dlopen(nullptr, RTLD_NOW) : nullptr;
}

void* try_load(const std::string& name, std::string& tried) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) return handle;
    const char* why = dlerror();
    tried += fmt::format("; {}: {}", name, why ? why : "no reason given");
    return nullptr;
}

Result<Library> open_library(const std::string& path) {
    Library library;
    std::string tried;
    // A path from the user takes precedence over an NCCL that the program has loaded.
    void* handle = path.empty() ? nullptr : try_load(path, tried);
    library.where = path;
    if (!handle) {
        handle = already_loaded();
        library.where = "already in the process";
        if (!handle) tried += "; what the process has loaded already: none";
    }
    if (!handle) {
        handle = try_load(file_name, tried);
        library.where = file_name;
    }
    if (!handle)
        return fail(Code::unsupported, "NCCL was not found; looked at {}", tried.substr(2))
            .advice("install NCCL, or set TUTTI_NCCL_LIBRARY to the path of libnccl.so.2");
    const char* missing = nullptr;
#define TUTTI_NCCL_LOAD(member, symbol, needed, ...)                                    \
    library.member = reinterpret_cast<decltype(library.member)>(dlsym(handle, symbol)); \
    if (!library.member && (needed)) missing = symbol;
    TUTTI_NCCL_FUNCTIONS(TUTTI_NCCL_LOAD)
#undef TUTTI_NCCL_LOAD
    if (library.get_version) library.get_version(&library.version);
    if (missing || library.version < oldest_version)
        return fail(Code::unsupported, "NCCL {} ({}) is too old{}{}: at least {} is needed",
                    version_text(library.version), library.where, missing ? ", without " : "",
                    missing ? missing : "", version_text(oldest_version))
            .advice("install a newer NCCL, or set TUTTI_NCCL_LIBRARY to the path of one");
    return library;
}

}  // namespace

std::string version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<const Library*> load_library(const std::string& path) {
    static std::mutex mutex;
    static const Library* kept = nullptr;
    const std::lock_guard lock(mutex);
    if (kept) return kept;
    TUTTI_ASSIGN(Library opened, open_library(path));
    // Never closed: NCCL's threads and kernels may outlive any object that would close it.
    return kept = new Library(std::move(opened));
}

Error nccl_error(const Library& library, Comm comm, Status status, const std::string& doing) {
    const char* more = library.last_error ? library.last_error(comm) : nullptr;
    return {Code::system, nobody, 0,
            fmt::format("{}: NCCL: {}{}{}", doing, library.error_string(status),
                        more && *more ? ": " : "", more ? more : ""),
            "read the output of all ranks with NCCL_DEBUG=INFO, which has NCCL's own log"};
}

}  // namespace tutti::nccl
