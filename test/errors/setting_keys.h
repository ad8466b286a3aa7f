// The settings that the library knows.
#pragma once

#include <string>
#include <vector>

namespace errors_test {

/// The names of all settings, from the library's own table.
std::vector<std::string> setting_keys();

/// "TUTTI_NRINGS" for "nrings".
std::string variable_of(const std::string& key);

}  // namespace errors_test
