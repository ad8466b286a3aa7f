// Slurm's compressed lists of hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tutti {

/// "n[01-03,7],m2" is n01, n02, n03, n7, m2. A name may have several brackets. invalid: names the
/// place of the syntax error, or the list is longer than any cluster.
Result<std::vector<std::string>> expand_host_list(std::string_view list);

}  // namespace tutti
