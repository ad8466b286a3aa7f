// Reads files that a setting names.
#pragma once

#include <string>

#include "base/result.h"

namespace tutti {

/// All of a file, or of a pipe (a shell's <(command)). invalid, with the name and the system's
/// reason; also if the file is longer than most_bytes, because some files never end.
Result<std::string> read_small_file(const std::string& path, std::size_t most_bytes);

/// The secret in a file, without trailing newlines. invalid if it is empty. Logs a warning if other
/// users of the host than the file's owner and group can read it, once per process.
Result<std::string> read_secret_file(const std::string& path);

}  // namespace tutti
