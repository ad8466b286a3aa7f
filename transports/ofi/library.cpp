#include "transports/ofi/library.h"

#include <dlfcn.h>

namespace tutti::ofi {
namespace {

constexpr const char* file_name = "libfabric.so.1";

Result<Library> open_library() {
    // The providers of Intel's and QLogic's cards install handlers for six signals, SIGINT and
    // SIGTERM among them.
    const SavedSignalHandlers kept(library_code());
    void* handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(Code::unsupported, "libfabric cannot be loaded: {}", dlerror())
            .advice("install libfabric (Debian: libfabric1), or take ofi out of TUTTI_TRANSPORT");
    Library out;
    const char* missing = nullptr;
#define TUTTI_OFI_LOAD(function)                                                       \
    out.function = reinterpret_cast<decltype(out.function)>(dlsym(handle, #function)); \
    if (!out.function) missing = #function;
    TUTTI_OFI_FUNCTIONS(TUTTI_OFI_LOAD)
#undef TUTTI_OFI_LOAD
    const uint32_t version = out.fi_version ? out.fi_version() : 0;
    if (missing || FI_VERSION_LT(version, api_version))
        return fail(Code::unsupported, "libfabric {}.{} is too old{}{}: at least {}.{} is needed",
                    FI_MAJOR(version), FI_MINOR(version), missing ? ", without " : "",
                    missing ? missing : "", FI_MAJOR(api_version), FI_MINOR(api_version))
            .advice(
                "install one newer version of libfabric on every host, or take ofi out of "
                "TUTTI_TRANSPORT");
    return out;
}

const Result<Library>& the_library() {
    // Never closed: providers may have threads and handlers.
    static const Result<Library> opened = open_library();
    return opened;
}

}  // namespace

Result<const Library*> load_library() {
    const Result<Library>& opened = the_library();
    if (!opened) return tl::unexpected(opened.error());
    return &*opened;
}

LibraryCode& library_code() {
    static LibraryCode code;
    return code;
}

const Library& library() {
    return *the_library();
}

}  // namespace tutti::ofi
