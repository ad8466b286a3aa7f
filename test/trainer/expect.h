// One-line assertions of the trainer's tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"
#include "tutti/buffers.hpp"

namespace expect {

/// "no error" if there is none.
inline std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const tutti::Error& error) {
        return error.what();
    }
    return "no error";
}

inline void words(const std::string& text, const std::string& wanted) {
    INFO(text);
    REQUIRE(text.find(wanted) != std::string::npos);
}

inline void error(const std::function<void()>& call, const std::string& wanted) {
    words(error_of(call), wanted);
}

/// Takes the result of ranks::run: a text for each rank, "" if it has no problem.
inline void no_problem(const std::vector<std::string>& problems) {
    for (std::size_t rank = 0; rank < problems.size(); ++rank) {
        INFO("rank " << rank);
        REQUIRE(problems[rank] == "");
    }
}

}  // namespace expect
