// libfabric as it is found at run time. It is loaded when a communicator first asks for it and not
// before: its providers look for hardware, which takes a tenth of a second.
//
// Newer libraries only append to the structures that an older header declares, and those that grow
// are made by the library itself (fi_dupinfo): so whatever version there is fits.
#pragma once

#include <rdma/fabric.h>

#include "base/result.h"
#include "os/signals.h"

namespace tutti::ofi {

/// tutti asks every libfabric for this version of the interface: newer libraries then behave as
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

/// The one of this process. unsupported: there is none, or it is too old.
Result<const Library*> load_library();

/// The same, for who knows that it was loaded.
const Library& library();

/// The code of libfabric and of its providers, as far as they are loaded: for SavedSignalHandlers.
LibraryCode& library_code();

}  // namespace tutti::ofi
