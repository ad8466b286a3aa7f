// Checks the settings that name a transport or an algorithm against those of this build.
#pragma once

#include "config/config.h"

namespace tutti {

/// `invalid`: this build has no transport or algorithm of that name; the advice lists those that it
/// has.
Result<> check_transports(const Config& config);
Result<> check_algorithm(const Config& config);

/// As set_config(), but also checks a transport's or algorithm's name. On an error, config stays
/// unchanged.
Result<> set_known(Config& config, std::string_view key, std::string_view value);

}  // namespace tutti
