// Compiled apart: the library's own classes and those of the C++ faces have names in common.
#include "errors/setting_keys.h"

#include "config/config.h"

namespace errors_test {

std::vector<std::string> setting_keys() {
    std::vector<std::string> names;
    for (const tutti::ConfigKey& key : tutti::config_keys()) names.emplace_back(key.name);
    return names;
}

std::string variable_of(const std::string& key) {
    return tutti::variable_of(key);
}

}  // namespace errors_test
