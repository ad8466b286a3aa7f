// Element types by name, for the command lines of tools.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/complain.h"
#include "reduce/reduce.h"

namespace tutti {

/// Throws CLI::ValidationError for an unknown name. Its text lists the known names.
inline Dtype dtype_of(const std::string& name) {
    std::string known;
    for (int i = 0; i < dtype_count; ++i) {
        const auto dtype = static_cast<Dtype>(i);
        if (name == dtype_name(dtype)) return dtype;
        known += fmt::format("{}{}", i == 0 ? "" : ", ", dtype_name(dtype));
    }
    throw CLI::ValidationError(
        "--dtype",
        command_line::with_advice(fmt::format("unknown dtype '{}'", name), "give one of " + known));
}

}  // namespace tutti
