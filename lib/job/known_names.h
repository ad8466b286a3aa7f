// Settings that name what this build has, which the settings themselves do not know.
#pragma once

#include "config/config.h"

namespace tutti {

/// invalid: a transport or an algorithm of that name is not there; lists those that are.
Result<> check_transports(const Config& config);
Result<> check_algorithm(const Config& config);

/// A setting by its name, as set_config(), and whether what it names is there; else all is as it
/// was.
Result<> set_known(Config& config, std::string_view key, std::string_view value);

}  // namespace tutti
