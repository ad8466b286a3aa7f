// Helpers of every test program that runs as a rank: its number, and how it reports a failure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tutti/tutti.h"

namespace rank_test {

inline int rank_of = 0, ranks = 1;

[[noreturn]] inline void give_up(const std::string& what) {
    std::fprintf(stderr, "rank %d: %s (last error: %s)\n", rank_of, what.c_str(),
                 tutti_last_error());
    std::_Exit(1);
}
inline void require(bool holds, const std::string& what) {
    if (!holds) give_up(what);
}
inline void need(tutti_status status, const std::string& what = "a call") {
    if (status != TUTTI_OK) give_up(what + ": " + tutti_status_string(status));
}
inline void expect_error(tutti_status status, tutti_status wanted, const std::string& words) {
    if (status != wanted || std::string(tutti_last_error()).find(words) == std::string::npos)
        give_up("expected '" + words + "', got " + tutti_status_string(status));
}

using Cases = std::map<std::string, void (*)(tutti_comm*)>;

/// Joins the job, runs the case that the first argument names, and leaves.
inline int run_case(int argc, char** argv, const Cases& cases) {
    if (argc < 2 || cases.count(argv[1]) == 0) return 2;
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(nullptr, &comm), "create");
    rank_of = tutti_comm_rank(comm);
    ranks = tutti_comm_size(comm);
    cases.at(argv[1])(comm);
    need(tutti_comm_destroy(comm), "destroy");
    return 0;
}

}  // namespace rank_test
