// Files that a setting names.
#pragma once

#include <string>

#include "base/result.h"

namespace tutti {

/// All of a file, or of what comes through a pipe (a shell's <(command)). invalid, with its name
/// and the system's reason, or if it is longer: of some there is no end.
Result<std::string> read_small_file(const std::string& path, std::size_t most_bytes);

/// The secret that a file holds, without the newlines at its end. invalid if that is nothing.
Result<std::string> read_secret_file(const std::string& path);

}  // namespace tutti
