// Finds libfabric at run time. The library is loaded when a communicator first asks for it, because
// its providers look for hardware, which takes a tenth of a second.
//
// Newer libraries only append to the structures that an older header declares, and the library
// itself allocates the structures that grow (fi_dupinfo). So any version is compatible.
#pragma once

#include <rdma/fabric.h>

#include "base/result.h"
#include "os/signals.h"

namespace tutti::ofi {

/// tutti asks every libfabric for this version of the interface, so that newer libraries behave as
/// this one does.
inline constexpr uint32_t api_version = FI_VERSION(1, 17);

#define TUTTI_OFI_FUNCTIONS(X) \
    X(fi_version)              \
    X(fi_getinfo)              \
    X(fi_dupinfo)              \
    X(fi_freeinfo)             \
    X(fi_fabric)               \
    X(fi_strerror)             \
    X(fi_tostr)

struct Library {
#define TUTTI_OFI_DECLARE(function) decltype(&::function) function = nullptr;
    TUTTI_OFI_FUNCTIONS(TUTTI_OFI_DECLARE)
#undef TUTTI_OFI_DECLARE
};

/// The libfabric of this process. unsupported: there is none, or it is too old.
Result<const Library*> load_library();

/// The same, for callers after a successful load_library().
const Library& library();

/// The code of libfabric and of its providers, as far as they are loaded: for SavedSignalHandlers.
LibraryCode& library_code();

}  // namespace tutti::ofi
