#include "base/version.h"

namespace tutti {

std::string_view version() {
    return TUTTI_VERSION_STRING;
}

}  // namespace tutti
