// The version of this build.
#pragma once

#include <string_view>

namespace tutti {

/// "0.2.0"; a literal, so it ends with a zero.
std::string_view version();

}  // namespace tutti
