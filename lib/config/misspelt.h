// Variables whose names nearly match those of settings: tutti would ignore them silently.
#pragma once

#include <vector>

#include "base/result.h"

namespace tutti {

/// environment: "NAME=VALUE", then nullptr. Returns an error for each name that begins with
/// TUTTI_, is not a variable of tutti's, and differs from one by a letter or two or by a usual
/// mistake. Programs may have further TUTTI_ variables of their own: names that resemble none are
/// not listed.
std::vector<Error> misspelt_variables(const char* const* environment);

}  // namespace tutti
