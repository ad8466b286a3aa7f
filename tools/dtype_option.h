// Element types by name, for the command lines of tools.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "reduce/reduce.h"

namespace tutti {

/// Throws CLI::ValidationError with the names there are.
inline Dtype dtype_of(const std::string& name) {
    std::string known;
    for (int i = 0; i < dtype_count; ++i) {
        const auto dtype = static_cast<Dtype>(i);
        if (name == dtype_name(dtype)) return dtype;
        known += fmt::format("{}{}", i == 0 ? "" : ", ", dtype_name(dtype));
    }
    throw CLI::ValidationError("--dtype",
                               fmt::format("unknown dtype '{}'; give one of {}", name, known));
}

}  // namespace tutti
