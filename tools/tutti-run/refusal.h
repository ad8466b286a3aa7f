// Explains why a rank's program could not be executed.
#pragma once

#include <string>
#include <vector>

namespace tutti::run {

struct Refusal {
    int exit_code = 0;
    std::string text;
};

/// environment: "NAME=VALUE", with the PATH that was searched. cause: exec's errno.
Refusal explain(const std::string& program, const std::vector<std::string>& environment, int cause);

}  // namespace tutti::run
