// Variables whose names are nearly those of settings: nobody reads them, and nothing would say so.
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// environment: "NAME=VALUE", then nullptr. A sentence for each name that begins with TUTTI_, that
/// nothing reads, and that is a letter or two from one that is read, or a usual mistake for one.
/// Programs may have further TUTTI_ variables of their own: those that are like none are not named.
std::vector<std::string> misspelt_variables(const char* const* environment);

}  // namespace tutti
